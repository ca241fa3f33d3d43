"""Fusion of the general operations that layers write into fused row operations of devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from volumetric.base._typing import ROWS
from volumetric.graph.numeric.activations import ACTIVATIONS
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune


def fuse_on_rows(graph: Graph, operations: Collection[str]) -> Graph:
    """Fuse nodes without other readers into the fused row `operations` of the device."""
    rules = {"lookup": _lookup, "gated": _gate, "grouped_norm": _norm_of_groups}
    of = _GraphFacts(graph)
    for name, rule in rules.items():
        for at, node in enumerate(graph.nodes if name in operations else ()):
            of.nodes[at] = rule(of, node) or of.nodes[at]
    return prune(dataclasses.replace(graph, nodes=tuple(of.nodes)))


class _GraphFacts:
    """A graph with indexes: the node that computes a value, and the number of readers of a value."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes = list(graph.nodes)
        self._maker = {node.outputs[0]: node for node in graph.nodes}

    @cached_property
    def _reads(self) -> Mapping[int, int]:
        reads: dict[int, int] = dict.fromkeys(self._graph.outputs, 2)
        for node in self._graph.nodes:
            for i in node.inputs:
                reads[i] = reads.get(i, 0) + 1
        return reads

    def shape(self, i: int) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._graph.tensors[i].shape

    def is_rows(self, i: int) -> bool:
        """Return whether a tensor is features of the rows of a call."""
        known = self._graph.tensors[i]
        return known.role in ("input", "scratch") and len(known.shape) == 2 and known.shape[0] == ROWS

    def is_position(self, i: int) -> bool:
        """Return whether a tensor is derived from the positions of the rows."""
        return i in self._graph.derived

    def table(self, i: int) -> tuple[int, int] | None:
        """Return (parameter, first row) of a tensor that is a parameter or the last rows of a parameter, else None."""
        if self._graph.tensors[i].role == "parameter":
            return i, 0
        part = self._maker.get(i)
        if part is None or part.op != "slice" or self._graph.tensors[part.inputs[0]].role != "parameter":
            return None
        first, *others = part.attrs["starts"]
        return None if any(others) or part.attrs["stops"] != self.shape(part.inputs[0]) else (part.inputs[0], first)

    def is_stored(self, i: int, *shape: int) -> bool:
        """Return whether a tensor is a parameter of this shape."""
        return self._graph.tensors[i].role == "parameter" and self.shape(i) == shape

    def single_use_maker(self, i: int, like: Node, op: str, **attrs: Any) -> Node | None:
        """Return the node that computes a value which only `like` reads, if it is `op` with these attributes."""
        node = self._maker.get(i)
        if node is None or node.op != op or node.predicate != like.predicate or self._reads[i] != 1:
            return None
        return node if all(node.attrs[name] == value for name, value in attrs.items()) else None


def _lookup(graph: _GraphFacts, node: Node) -> Node | None:
    """Fuse a lookup by ids with its factor, or a lookup by positions with the sum after it."""
    if node.op == "gather_rows":
        return _rows_of_table(graph, node, node)
    if node.op == "unary" and node.attrs["name"] == "affine" and node.attrs["beta"] == 0:
        rows = graph.single_use_maker(node.inputs[0], node, "gather_rows")
        return None if rows is None else _rows_of_table(graph, node, rows, scale=node.attrs["alpha"])
    if node.op == "binary" and node.attrs["name"] == "add":
        for side, x in (node.inputs, node.inputs[::-1]):
            rows = graph.single_use_maker(side, node, "gather_rows")
            alike = graph.is_rows(x) and graph.shape(x) == graph.shape(side)
            if rows is not None and alike and graph.is_position(rows.inputs[1]):
                return _rows_of_table(graph, node, rows, x)
    return None


def _rows_of_table(graph: _GraphFacts, node: Node, rows: Node, *x: int, scale: float = 1.0) -> Node | None:
    """Return the `lookup` that replaces `node` and the gather `rows`; lookups by positions also take x."""
    table, ids = graph.table(rows.inputs[0]), rows.inputs[1]
    if table is None or graph.is_position(ids) != bool(x) or (table[1] and not x) or graph.shape(ids) != (ROWS,):
        return None
    attrs = {"roles": ("ids", "weight", "x")[: 2 + len(x)], "scale": scale, "offset": table[1]}
    return _fused_node(node, "lookup", (ids, table[0], *x), attrs)


def _gate(graph: _GraphFacts, node: Node) -> Node | None:
    """Fuse ``act(a) · b`` of two values of one shape."""
    if node.op != "binary" or node.attrs["name"] != "mul" or not all(map(graph.is_rows, node.inputs)):
        return None
    for side, other in (node.inputs, node.inputs[::-1]):
        gate = graph.single_use_maker(side, node, "unary")
        if gate is not None and gate.attrs["name"] in ACTIVATIONS and graph.shape(side) == graph.shape(other):
            attrs = {"activation": gate.attrs["name"], "limit": None, "up_offset": 0.0}
            return _fused_node(node, "gated", (gate.inputs[0], other), attrs)
    return None


def _norm_of_groups(graph: _GraphFacts, node: Node) -> Node | None:
    """Fuse the norm of each part of a row with the product with a gain as wide as the row."""
    if node.op != "binary" or node.attrs["name"] != "mul" or not graph.is_rows(node.outputs[0]):
        return None
    width = graph.shape(node.outputs[0])[1]
    for side, gain in (node.inputs, node.inputs[::-1]):
        whole = graph.single_use_maker(side, node, "reshape") if graph.is_stored(gain, width) else None
        normal = graph.single_use_maker(whole.inputs[0], node, "norm", kind="rms") if whole else None
        parts = (
            graph.single_use_maker(normal.inputs[0], node, "reshape") if normal and len(normal.inputs) == 1 else None
        )
        if normal and parts and graph.is_rows(parts.inputs[0]) and graph.shape(parts.inputs[0]) == (ROWS, width):
            attrs = {"groups": width // graph.shape(parts.outputs[0])[1], "eps": normal.attrs["eps"]}
            return _fused_node(node, "grouped_norm", (parts.inputs[0], gain), attrs)
    return None


def _fused_node(node: Node, op: str, inputs: tuple[int, ...], attrs: Mapping[str, Any]) -> Node:
    return dataclasses.replace(node, op=op, inputs=inputs, attrs=MappingProxyType(attrs))
