"""A BERT as an ONNX file of batches with ONNX Runtime's fused operators, as its optimiser would write it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import UnsupportedError

OPSET = 20
FUSED = "com.microsoft"
"""Domain of ONNX Runtime's own operators: attention with heads, and a norm behind a sum."""


class _Graph:
    """Nodes and weights of a graph; each method adds a node and returns the name of its output."""

    def __init__(self, dtype: type[np.float32] | type[np.float16]) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._dtype = dtype

    def weight(self, values: Any, *, keep: bool = False) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        array = np.ascontiguousarray(values if keep else np.asarray(values, self._dtype))
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        from onnx import helper

        names = [f"n{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0]


def write_fused_encoder(path: Path, weights: Mapping[str, F32Array], config: Mapping[str, Any], *, half: bool) -> None:
    """Write an encoder that reads ``ids`` ``[texts, tokens]``, int64, and returns ``pooled``, the mean of its rows.

    Texts of a batch have one length, so nothing is masked. Products, norms and attention are in float16 if `half`.

    Raises
    ------
    UnsupportedError : the onnx package is missing
    """
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        raise UnsupportedError("writing ONNX files needs the onnx package", hint="pip install onnx") from None
    graph = _Graph(np.float16 if half else np.float32)
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]

    def norm(name: str, x: str, residual: str) -> str:
        gain, bias = (graph.weight(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return graph.node("SkipLayerNormalization", x, residual, gain, bias, domain=FUSED, epsilon=eps)

    def product(name: str, x: str) -> str:
        result = graph.node("MatMul", x, graph.weight(weights[f"{name}.weight"].T))
        return graph.node("Add", result, graph.weight(weights[f"{name}.bias"]))

    tokens = graph.node("Gather", graph.weight(weights["embeddings.word_embeddings.weight"]), "ids")
    length = graph.node("Slice", graph.node("Shape", "ids"), *(graph.weight([i], keep=True) for i in (1, 2)))
    table = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][:1]
    places = graph.node("Slice", graph.weight(table), graph.weight([0], keep=True), length)
    zeros = graph.node("Expand", places, graph.node("Shape", tokens))
    x = norm("embeddings.LayerNorm", tokens, zeros)
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        parts = [f"{layer}.attention.self.{name}" for name in ("query", "key", "value")]
        q, k, v = (graph.node("MatMul", x, graph.weight(weights[f"{part}.weight"].T)) for part in parts)
        bias = graph.weight(np.concatenate([weights[f"{part}.bias"] for part in parts]))
        attended = graph.node("MultiHeadAttention", q, k, v, bias, domain=FUSED, num_heads=heads)
        x = norm(f"{layer}.attention.output.LayerNorm", product(f"{layer}.attention.output.dense", attended), x)
        wide = graph.node("Gelu", product(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", product(f"{layer}.output.dense", wide), x)
    mean = graph.node("ReduceMean", x, graph.weight([1], keep=True), keepdims=0)
    graph.nodes.append(helper.make_node("Cast", [mean], ["pooled"], to=TensorProto.FLOAT))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "tokens"])
    pooled = helper.make_tensor_value_info("pooled", TensorProto.FLOAT, ["texts", config["hidden_size"]])
    body = helper.make_graph(graph.nodes, "encoder", [ids], [pooled], graph.weights)
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    path.write_bytes(helper.make_model(body, opset_imports=domains, ir_version=10).SerializeToString())
    onnx.checker.check_model(str(path))
