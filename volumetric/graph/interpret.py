"""The interpreter: runs graphs node by node with NumPy, in float32 or float64. What devices must agree with."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.graph.binding import bind, is_open, rows_of
from volumetric.graph.operations import OPS
from volumetric.graph.ops import HELD, Graph, Tensor

Float = type[np.float32] | type[np.float64]


def interpret(
    graph: Graph, inputs: Sequence[Array], buffers: MutableMapping[str, Array], dtype: Float = np.float32
) -> list[Array]:
    """Run `graph` on arrays; `buffers` are the persistent ones, replaced where the graph writes.

    Numbers that are not finite are results like others, so NumPy does not warn of them. Where rows are open, the inputs
    say how many there are.
    """
    if is_open(graph):
        graph = bind(graph, rows_of(graph, dict(zip(graph.inputs, inputs, strict=True))))
    values = _given(graph, inputs, buffers, dtype)
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            args = [values[i] for i in node.inputs]
            results = OPS[node.op].run(args, node.attrs)
            for i, result in zip(node.outputs, results, strict=True):
                tensor = graph.tensors[i]
                if node.op == "assign" and len(args) == 2 and args[1][0] == 0:
                    result = buffers[node.attrs["key"]]
                if not fits(tensor.shape, result.shape) or result.dtype != _type(tensor, dtype):
                    raise ShapeError(f"{node.op}: made {result.dtype} {list(result.shape)}, announced {tensor}")
                values[i] = result
                if tensor.key is not None:
                    buffers[tensor.key] = values[i] = result.copy()  # it may be an array of the caller
    return [values[i].copy() for i in graph.outputs]


def _given(graph: Graph, inputs: Sequence[Array], buffers: Mapping[str, Array], dtype: Float) -> dict[int, Array]:
    """Return what exists before the first node: constants, buffers and inputs."""
    values = {i: v.astype(_type(graph.tensors[i], dtype), copy=False) for i, v in graph.constants.items()}
    made = {i for node in graph.nodes for i in node.outputs}
    for i, tensor in enumerate(graph.tensors):
        if tensor.key is not None and i not in made:
            values[i] = check_buffer(tensor, buffers)
    if len(inputs) != len(graph.inputs):
        raise ShapeError(f"the graph takes {len(graph.inputs)} inputs, got {len(inputs)}")
    for i, value in zip(graph.inputs, inputs, strict=True):
        values[i] = check_value(graph.tensors[i], value).astype(_type(graph.tensors[i], dtype), copy=False)
    return values


def check_value(tensor: Tensor, value: Array) -> Array:
    """Return `value`; raise `ShapeError` unless it has the shape and kind of number of `tensor`."""
    kind = np.integer if tensor.dtype == "int32" else np.floating
    if not fits(tensor.shape, value.shape) or not np.issubdtype(value.dtype, kind):
        raise ShapeError(
            f"{tensor.name}: expected {tensor.dtype} of shape {list(tensor.shape)}, "
            f"got {value.dtype} of shape {list(value.shape)}"
        )
    return value


def fits(shape: Shape, actual: Shape) -> bool:
    """Whether an array has a shape, of which the rows that a state holds may be any number."""
    return len(shape) == len(actual) and all(n in (m, HELD) for n, m in zip(shape, actual, strict=True))


def check_buffer(tensor: Tensor, buffers: Mapping[str, Any]) -> Any:
    """Return the buffer of a keyed tensor, which must be there and have its shape and kind of number."""
    key = tensor.key or ""
    if key not in buffers:
        raise SpecError(f"the store has no buffer {key!r}", hint="put its first value into the store")
    return check_value(tensor, buffers[key])


def _type(tensor: Tensor, dtype: Float) -> type[np.generic]:
    return np.int32 if tensor.dtype == "int32" else dtype
