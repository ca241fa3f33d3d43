"""Assigns the nodes of a graph with open rows to row operations or to subgraphs of fixed shape.

Fused row operations read packed weights and states in place. General operations run as row operations, too, if each row
of their result depends on one row of each input. But a node whose inputs come from one subgraph only, or whose result
only one subgraph reads, joins that subgraph: another program, or another value that crosses its border, costs more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from volumetric.base._typing import ROWS
from volumetric.graph.ops import Graph, Node
from volumetric.graph.predicates import Predicate


class SegmentKind(NamedTuple):
    """The common properties of the nodes of a segment; row operations have separate predicates."""

    runs: bool
    tail: bool
    predicate: Predicate | None


def nodes_by_kind(graph: Graph, native: Collection[str]) -> list[tuple[SegmentKind, Node]]:
    """Return the nodes of a graph with their kinds.

    Parameters
    ----------
    native : operations that the device runs on the rows of a call
    """
    runs = [runs_on_rows(graph, node, native) for node in graph.nodes]
    pairs = zip(runs, graph.nodes, strict=True)
    node_kinds = [SegmentKind(run, node.tail, None if run else node.predicate) for run, node in pairs]
    if not all(runs):
        _BorderMover(graph, node_kinds).move()
    return list(zip(node_kinds, graph.nodes, strict=True))


def runs_on_rows(graph: Graph, node: Node, native: Collection[str]) -> bool:
    """Return whether a device with the operations `native` runs a node on the rows of a call."""
    values = [graph.tensors[i] for i in (*_values(graph, node.inputs), node.outputs[0])]
    open_rows = all(t.shape[0] == ROWS and len(t.shape) <= 2 for t in values if t.role in _VALUES)
    return node.op in native and open_rows and (node.op not in GENERAL or GENERAL[node.op](graph, node))


_VALUES = ("input", "scratch")
"""Roles of tensors with a value for each row of a call."""


def _values(graph: Graph, tensors: Iterable[int]) -> list[int]:
    return [i for i in tensors if graph.tensors[i].role in _VALUES]


def _reads_values_only(graph: Graph, node: Node) -> bool:
    return len(_values(graph, node.inputs)) == len(node.inputs)


def _has_one_shape(graph: Graph, node: Node) -> bool:
    """Return whether all inputs and outputs of a node have one shape."""
    return len({graph.tensors[i].shape for i in (*node.inputs, *node.outputs)}) == 1


def _reads_value_and_parameters(graph: Graph, node: Node) -> bool:
    """Return whether a node reads one value of the call, and otherwise only parameters as stored."""
    x, *others = node.inputs
    return bool(_values(graph, [x])) and all(graph.tensors[i].role == "parameter" for i in others)


GENERAL: Mapping[str, Callable[[Graph, Node], bool]] = MappingProxyType(
    {
        "binary": lambda graph, node: _reads_values_only(graph, node) and _has_one_shape(graph, node),
        "concat": lambda graph, node: node.attrs["axis"] == 1 and _reads_values_only(graph, node),
        "gated": _reads_values_only,
        "grouped_norm": _reads_value_and_parameters,
        "keep_largest": _reads_values_only,
        "norm": _reads_value_and_parameters,
        "slice": lambda graph, node: node.attrs["stops"][0] == ROWS and _reads_values_only(graph, node),
        "softmax": _reads_values_only,
        "unary": _reads_values_only,
    }
)
"""General operations that devices run on rows → whether they run a node whose values are rows of features."""


class _BorderMover:
    """Moves general nodes from row operations into neighbouring subgraphs."""

    def __init__(self, graph: Graph, node_kinds: list[SegmentKind]) -> None:
        self._graph, self._kinds = graph, node_kinds
        self._maker = {i: at for at, node in enumerate(graph.nodes) for i in node.outputs}
        self._readers: dict[int, set[int]] = {}
        for at, node in enumerate(graph.nodes):
            for i in node.inputs:
                self._readers.setdefault(i, set()).add(at)

    def move(self) -> None:
        """Change the kinds of all nodes that belong in subgraphs."""
        node_kinds = self._kinds
        parts = [[*places] for _, places in groupby(range(len(node_kinds)), key=node_kinds.__getitem__)]
        for before, places, after in zip([[], *parts], parts, [*parts[1:], []], strict=False):
            if not node_kinds[places[0]].runs:
                continue
            first, last = (node_kinds[part[0]] if part else None for part in (before, after))
            if first is not None and first == last and all(self._fits(at, first) for at in places):
                self._take(places, first)  # one subgraph instead of two
                continue
            self._take_while(before, places, self._is_made)
            self._take_while(after, places[::-1], self._is_read)

    def _take(self, places: list[int], subgraph: SegmentKind) -> None:
        for at in places:
            self._kinds[at] = subgraph

    def _take_while(self, subgraph: list[int], places: list[int], own: Callable[[int, set[int]], bool]) -> None:
        """Move nodes into a subgraph, starting with its neighbour, while `own` holds."""
        inside = set(subgraph)
        for at in places:
            if not (subgraph and self._fits(at, self._kinds[subgraph[0]]) and own(at, inside)):
                return
            self._take([at], self._kinds[subgraph[0]])
            inside.add(at)

    def _fits(self, at: int, subgraph: SegmentKind) -> bool:
        """Return whether a node may run in a subgraph: it is general, and its result is not an output."""
        node = self._graph.nodes[at]
        inner = node.op in GENERAL and not set(node.outputs) & set(self._graph.outputs)
        return inner and not subgraph.runs and (node.tail, node.predicate) == (subgraph.tail, subgraph.predicate)

    def _is_made(self, at: int, inside: set[int]) -> bool:
        """Return whether nodes of `inside` compute all values that a node reads."""
        return all(self._maker.get(i) in inside for i in _values(self._graph, self._graph.nodes[at].inputs))

    def _is_read(self, at: int, inside: set[int]) -> bool:
        """Return whether only nodes of `inside` read the outputs of a node."""
        return all(self._readers.get(i, set()) <= inside for i in self._graph.nodes[at].outputs)
