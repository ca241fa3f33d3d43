"""Small ONNX models as other programs write them, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8}


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Sequence[str],
    arrays: Mapping[str, Any],
    *,
    opset: int = 17,
    kinds: Mapping[str, str] | None = None,
) -> ModelProto:
    """A model: name → type and shape of its inputs, names of its outputs, name → array of its initialisers."""
    types = dict.fromkeys(outputs, "float32") | dict(kinds or {})
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, KINDS[kind], shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, KINDS[types[name]], None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def image_model() -> ModelProto:
    """A convolution, a pool, and a shape that is computed as torch's exporter does it."""
    draws = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return draws.normal(0, 0.3, shape).astype(np.float32)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "d"], ["y"], transB=1),
    ]
    whole = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])}
    arrays = {"w": weights(4, 1, 3, 3), "b": weights(4), "v": weights(3, 64), "d": weights(3), **whole}
    return model_of(nodes, {"x": ("float32", ["n", 1, 8, 8])}, ["y"], arrays)


def text_model() -> ModelProto:
    """An embedding, an LSTM over any number of ids, and a mean over those that a mask has."""
    draws = np.random.default_rng(1)

    def weights(*shape: int) -> Any:
        return draws.normal(0, 0.4, shape).astype(np.float32)

    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], axis=0),
        helper.make_node("Transpose", ["e"], ["t"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["t", "w", "r", "b"], ["h"], hidden_size=5, direction="bidirectional"),
        helper.make_node("Transpose", ["h"], ["h1"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["h1", "flat"], ["h2"]),
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["m1"]),
        helper.make_node("Mul", ["h2", "m1"], ["h3"]),
        helper.make_node("ReduceSum", ["h3", "one"], ["total"], keepdims=0),
        helper.make_node("ReduceSum", ["m", "one"], ["count"], keepdims=1),
        helper.make_node("Div", ["total", "count"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0),
    ]
    whole = {"flat": np.array([0, 0, 10]), "last": np.array([2]), "one": np.array([1])}
    arrays = {"table": weights(11, 4), "w": weights(2, 20, 4), "r": weights(2, 20, 5), "b": weights(2, 40), **whole}
    inputs: dict[str, tuple[str, list[int | str]]] = {"ids": ("int64", ["n", "t"]), "mask": ("int64", ["n", "t"])}
    return model_of(nodes, inputs, ["y", "best"], arrays, kinds={"best": "int64"})


def saved(model: ModelProto, path: Path) -> Path:
    save(model, str(path))
    return path
