"""Binds the open row count: turns a graph for any number of rows into a graph for one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError
from volumetric.graph.ops import HELD, Graph, Node, Tensor

_SIZES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "reshape": ("shape",),
        "broadcast": ("shape",),
        "slice": ("starts", "stops"),
        "gemm": ("groups",),
        "scatter_rows": ("rows",),
        "scan": ("length",),
    }
)
"""Attributes of operations that are sizes and can therefore be open."""


def is_open(graph: Graph) -> bool:
    """Return whether the number of rows is open."""
    return any(n < 0 for i in graph.inputs for n in graph.tensors[i].shape)


def bind(graph: Graph, rows: int) -> Graph:
    """Return `graph` for calls of `rows` rows; the rows that a state holds stay open."""
    tensors = [replace(t, shape=_bind_sizes(t.shape, rows)) for t in graph.tensors]
    nodes = [bound for node in graph.nodes for bound in _bind_node(node, tensors, rows)]
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def rows_of(graph: Graph, inputs: Mapping[int, Array]) -> int:
    """Return the number of rows of a call with these `inputs`; raise `ShapeError` if they disagree."""
    row_counts = set[int]()
    for i, value in inputs.items():
        tensor = graph.tensors[i]
        if len(value.shape) != len(tensor.shape):
            raise ShapeError(f"{tensor.name}: expected {len(tensor.shape)} axes, got shape {list(value.shape)}")
        row_counts |= {m // -n for n, m in zip(tensor.shape, value.shape, strict=True) if n < 0}
    if len(row_counts) != 1:
        raise ShapeError(f"the inputs have different numbers of rows: {sorted(row_counts)}")
    return row_counts.pop()


def tables_of_positions(graph: Graph) -> list[tuple[str, int]]:
    """Return the layers that read a table row for each position, each with the number of positions of its table."""
    tables: list[tuple[str, int]] = []
    for node in graph.nodes:
        if node.op == "gather_rows" and node.inputs[1] in graph.derived:
            tables.append((node.where, graph.tensors[node.inputs[0]].shape[0]))
        elif node.op == "lookup" and node.inputs[0] in graph.derived:
            tables.append((node.where, graph.tensors[node.inputs[1]].shape[0] - node.attrs["offset"]))
    return tables


def _bind_sizes(sizes: Shape, rows: int) -> Shape:
    return tuple(n if n >= 0 or n == HELD else -n * rows for n in sizes)


def _bind_node(node: Node, tensors: list[Tensor], rows: int) -> list[Node]:
    """Return the nodes that replace a node in a call of `rows` rows; may add tensors."""
    if node.op == "last":
        shape, axis = tensors[node.inputs[0]].shape, node.attrs["axis"]
        return [_slice_node(node, node.inputs[0], node.outputs[0], shape, axis, shape[axis] - 1, shape[axis])]
    if node.op == "delay":
        x, past = node.inputs
        shape = tensors[past].shape
        joined = len(tensors)
        tensors.append(Tensor(name="joined", shape=(shape[0] + rows, *shape[1:]), dtype=tensors[past].dtype))
        concat = replace(node, op="concat", inputs=(past, x), outputs=(joined,), attrs=MappingProxyType({"axis": 0}))
        whole, (earlier, left) = tensors[joined].shape, node.outputs
        return [
            concat,
            _slice_node(node, joined, earlier, whole, 0, 0, rows),
            _slice_node(node, joined, left, whole, 0, rows, rows + shape[0]),
        ]
    names = _SIZES.get(node.op, ())
    attrs: dict[str, Any] = dict(node.attrs)
    if node.op == "scan":  # its steps may be the rows of a call, or each step one row of every sample
        attrs["body"] = bind(attrs["body"], rows)
    for name in names:
        value = attrs[name]
        attrs[name] = _bind_sizes(value, rows) if isinstance(value, tuple) else _bind_sizes((value,), rows)[0]
    return [replace(node, attrs=MappingProxyType(attrs)) if names else node]


def _slice_node(node: Node, x: int, y: int, shape: Shape, axis: int, start: int, stop: int) -> Node:
    """Return a slice of one axis that replaces `node`."""
    starts = tuple(start if i == axis else 0 for i in range(len(shape)))
    stops = tuple(stop if i == axis else n for i, n in enumerate(shape))
    return replace(
        node, op="slice", inputs=(x,), outputs=(y,), attrs=MappingProxyType({"starts": starts, "stops": stops})
    )
