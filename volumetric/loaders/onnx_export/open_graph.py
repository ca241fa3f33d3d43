"""A forward pass whose number of rows is open, from graphs that layers emit for a few fixed numbers of rows.

Layers emit graphs of fixed shapes. All sizes of a graph that is right for any number of rows n are ``base + rate · n``,
and its nodes and constants do not depend on n. So the graphs of several n are compared, node by node: they agree, or
the first difference names the layer for which the number of rows must be fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from volumetric.graph.ops import Graph, Node


@dataclass(frozen=True, slots=True)
class RowSize:
    """A size ``base + rate · n`` for n rows."""

    base: int
    rate: int


Size: TypeAlias = "int | RowSize"
Sizes: TypeAlias = tuple[Size, ...]


class RowsDifferError(Exception):
    """Raised if graphs for different numbers of rows are not one graph; `where` is the layer."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGraph:
    """A graph with sizes that may depend on the number of rows.

    Attributes
    ----------
    graph : the graph of one number of rows, for its nodes, constants and names
    positions : constants of `graph` that are the numbers of the rows, 0 … n − 1
    shapes : shape of each tensor of `graph`
    attrs : attributes of each node of `graph`; the body of a scan is an `OpenGraph`
    """

    graph: Graph
    shapes: Mapping[int, Sizes]
    attrs: tuple[Mapping[str, Any], ...]
    positions: frozenset[int] = frozenset()


def join_graphs(graphs: Sequence[Graph], rows: Sequence[int]) -> OpenGraph:
    """Return one graph for any number of rows from those for `rows`; a single graph keeps its sizes.

    Raises
    ------
    RowsDifferError : the graphs have different nodes, constants, or sizes that do not grow linearly
    """
    return _GraphJoin(graphs, rows).join()


class _GraphJoin:
    def __init__(self, graphs: Sequence[Graph], rows: Sequence[int]) -> None:
        self._graphs, self._rows = graphs, rows
        self._maps: list[dict[int, int]] = [{} for _ in graphs]
        self._shapes: dict[int, Sizes] = {}
        self._positions: set[int] = set()
        self._where = ""

    def join(self) -> OpenGraph:
        graphs = self._graphs
        self._expect_equal(*((len(g.inputs), len(g.outputs)) for g in graphs))
        for tensors in zip(*(g.inputs for g in graphs), strict=True):
            self._match(tensors)
        attrs = [self._join_nodes(nodes) for nodes in zip(*(g.nodes for g in graphs), strict=False)]
        self._expect_equal(*(len(g.nodes) for g in graphs))
        for tensors in zip(*(g.outputs for g in graphs), strict=True):
            self._match(tensors)
        positions = frozenset(self._positions)
        return OpenGraph(graph=graphs[0], shapes=self._shapes, attrs=tuple(attrs), positions=positions)

    def _join_nodes(self, nodes: tuple[Node, ...]) -> dict[str, Any]:
        first = nodes[0]
        self._where = first.where
        self._expect_equal(*((n.op, n.where, len(n.inputs), len(n.outputs), sorted(n.attrs)) for n in nodes))
        for tensors in zip(*(n.inputs for n in nodes), strict=True):
            self._match(tensors)
        for tensors in zip(*(n.outputs for n in nodes), strict=True):
            self._match(tensors)
        return {name: self._fit(*(n.attrs[name] for n in nodes)) for name in first.attrs}

    def _match(self, tensors: tuple[int, ...]) -> None:
        """Note that these tensors of all graphs are one tensor."""
        first = tensors[0]
        pairs = [(g.tensors[i], g.constants.get(i)) for g, i in zip(self._graphs, tensors, strict=True)]
        self._expect_equal(*((t.dtype, t.role, t.key) for t, _ in pairs))
        constants = [value for _, value in pairs if value is not None]
        if constants and any(not np.array_equal(constants[0], value, equal_nan=True) for value in constants):
            if any(not np.array_equal(np.arange(n), value) for n, value in zip(self._rows, constants, strict=True)):
                raise RowsDifferError(self._where)
            self._positions.add(first)
        if not constants:
            for mapping, i in zip(self._maps, tensors, strict=True):
                self._expect_equal(mapping.setdefault(first, i), i)
        if first not in self._shapes:
            self._shapes[first] = self._fit(*(t.shape for t, _ in pairs))

    def _fit(self, *values: Any) -> Any:
        """Return the common value of an attribute or shape, with sizes that grow with the rows."""
        first = values[0]
        if isinstance(first, Graph):
            return join_graphs(values, self._rows)
        if isinstance(first, tuple):
            self._expect_equal(*map(len, values))
            return tuple(self._fit(*each) for each in zip(*values, strict=True))
        if all(value == first for value in values):
            return first
        if not all(type(value) is int for value in values):
            raise RowsDifferError(self._where)
        return self._line(values)

    def _line(self, values: tuple[int, ...]) -> RowSize:
        rate, left = divmod(values[1] - values[0], self._rows[1] - self._rows[0])
        size = RowSize(values[0] - rate * self._rows[0], rate)
        if left or any(size.base + rate * n != value for n, value in zip(self._rows, values, strict=True)):
            raise RowsDifferError(self._where)
        return size

    def _expect_equal(self, *values: Any) -> None:
        if any(value != values[0] for value in values):
            raise RowsDifferError(self._where)
