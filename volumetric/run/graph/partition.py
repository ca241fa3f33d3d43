"""Segments: partitions a graph with open rows into fused row operations and the subgraphs between them.

Row operations take any number of rows, and read packed weights and states in place. Everything else is compiled for a
fixed number of rows; it takes states of a sequence as inputs and returns new ones as outputs, so that its programs
serve all sequences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from volumetric.base._typing import ROWS
from volumetric.base.errors import UnsupportedError
from volumetric.graph.binding import tables_of_positions
from volumetric.graph.ops import Graph, Node, Tensor
from volumetric.graph.predicates import Predicate
from volumetric.run.graph.network_graph import DIALECT, GROUPED, open_graph
from volumetric.run.graph.row_nodes import nodes_by_kind
from volumetric.run.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive nodes of a graph that run in the same way.

    Attributes
    ----------
    nodes : with tensor numbers of the whole graph
    graph : the nodes as a separate graph; None for row operations
    inputs, outputs : tensors of the whole graph that `graph` takes and returns, including states that it reads or
        writes
    mixes : a row of a result depends on other rows, or on its position
    tail : may run on the last row only
    predicate : predicate of all nodes of `graph`, see `Node`
    """

    nodes: tuple[Node, ...]
    graph: Graph | None
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    mixes: bool = False
    tail: bool = False
    predicate: Predicate | None = None

    @property
    def parameters(self) -> frozenset[str]:
        """Keys of the parameters that `graph` reads."""
        return frozenset() if self.graph is None else frozenset(self.graph.tensors_by_key)

    @property
    def name(self) -> str:
        """Operation and layer of the first node, for display."""
        return f"{self.nodes[0].op} {self.nodes[0].where}".rstrip()


class ValueUse(NamedTuple):
    """Values that a node or segment reads and writes; `tail`: it is in the tail; `leaf`: it only computes an output."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    tail: bool
    leaf: bool = False


class Partition:
    """The partition of a network's graph with open rows into segments.

    Parameters
    ----------
    plan : layer-level plan, of `lower`
    native : operations that the device runs on the rows of a call
    parted : see `GraphDevice.parted`

    Attributes
    ----------
    inputs, outputs : name → tensor of the graph that a call passes or gets
    segments : segments in order
    rows : nodes of the segments that are row operations
    uses : the values that each of these nodes and each other segment reads and writes, in order
    body : number of `uses` before the tail
    """

    def __init__(self, plan: Plan, native: Collection[str], *, parted: bool = False) -> None:
        self.plan = plan
        self.graph: Graph
        self.graph = graph = open_graph(plan, (DIALECT | GROUPED).intersection(native), parted=parted)
        self.inputs: dict[str, int] = dict(zip(plan.inputs, graph.caller_inputs, strict=True))
        self.outputs: dict[str, int] = dict(zip(plan.outputs, graph.outputs, strict=True))
        self.segments: tuple[Segment, ...] = split_segments(graph, native)
        self.rows: tuple[Node, ...] = tuple(node for part in self.segments if part.graph is None for node in part.nodes)
        self.uses: tuple[ValueUse, ...] = tuple(use for part in self.segments for use in _uses(graph, part))
        writer = {i: at for at, use in enumerate(self.uses, 1) for i in use.writes}
        self.body: int = sum(not use.tail for use in self.uses)
        self._needed: dict[frozenset[int], tuple[range, ...]] = {}
        self._ends = {i: max(writer.get(i, 0), self.body) for i in graph.outputs}

    def needed_uses(self, outputs: Iterable[int]) -> tuple[range, ...]:
        """Return the ranges of `uses` that run for these outputs.

        These are all before the tail, and those up to the last one that computes a requested output, without those
        that only compute other outputs.
        """
        requested = frozenset(outputs)
        if requested not in self._needed:
            end = max((self._ends[i] for i in requested), default=self.body)
            left = [at for at, use in enumerate(self.uses[:end]) if use.leaf and requested.isdisjoint(use.writes)]
            left = [at for at in left if at != self.body]  # it gathers the rows of the tail
            edges = zip([0, *(at + 1 for at in left)], [*left, end], strict=True)
            self._needed[requested] = tuple(range(start, stop) for start, stop in edges if start < stop)
        return self._needed[requested]

    def segments_of(self, needed: Iterable[range]) -> Iterator[Segment]:
        """Yield the segments, or the nodes of them, that are `needed`."""
        chosen = {at for some in needed for at in some}
        first = 0
        for part in self.segments:
            count = 1 if part.graph is not None else len(part.nodes)
            numbers = [at for at in range(count) if first + at in chosen]
            if numbers:
                yield part if len(numbers) == count else replace(part, nodes=tuple(part.nodes[at] for at in numbers))
            first += count

    @cached_property
    def positions(self) -> int | None:
        """Most rows of a sequence because of learned positions; None: any number."""
        return min((positions for _, positions in tables_of_positions(self.graph)), default=None)


def row_wise(plan: Plan, native: Collection[str]) -> bool:
    """Return whether a network consists of row operations only, which run on packed weights."""
    return all(part.graph is None for part in Partition(plan, native).segments)


def _uses(graph: Graph, part: Segment) -> Iterator[ValueUse]:
    if part.graph is not None:
        yield ValueUse(graph.values(part.inputs), graph.values(part.outputs), part.tail)
        return
    for node in part.nodes:
        output = node.outputs[0]
        leaf = output in graph.outputs and not list(graph.readers(output)) and not node.mixes and node.predicate is None
        yield ValueUse(graph.values(node.inputs), node.outputs[:1], node.tail, leaf and not graph.states(node))


def split_segments(graph: Graph, native: Collection[str]) -> tuple[Segment, ...]:
    """Partition a graph into segments.

    Parameters
    ----------
    native : operations that the device runs on the rows of a call
    """
    parts: list[Segment] = []
    for (runs, tail, _), nodes in groupby(nodes_by_kind(graph, native), key=itemgetter(0)):
        part = tuple(node for _, node in nodes)
        parts.append(Segment(nodes=part, graph=None, tail=tail) if runs else _subgraph_segment(graph, part))
    return tuple(parts)


def _subgraph_segment(graph: Graph, nodes: tuple[Node, ...]) -> Segment:
    """Turn nodes into a graph; states that they read become inputs, states that they assign become outputs."""
    tensors = list(graph.tensors)
    computed = {i for node in nodes for i in node.outputs}
    read = dict.fromkeys(i for node in nodes for i in node.inputs if i not in computed)
    inputs = tuple(i for i in read if tensors[i].role in ("input", "scratch", "state"))
    left = {node.outputs[0]: node.inputs[0] for node in nodes if node.op == "assign" and _is_state(tensors, node)}
    inside = {id(node) for node in nodes}
    outside = {i for node in graph.nodes if id(node) not in inside for i in node.inputs} | set(graph.outputs)
    crossing = tuple(i for i in sorted(computed & outside) if i not in left)
    for i in (*inputs, *crossing):
        if tensors[i].role != "state" and tensors[i].shape[0] != ROWS:
            raise UnsupportedError(f"{tensors[i]} crosses segments, but rows are not its first axis")
    for i in inputs:
        tensors[i] = replace(tensors[i], key=None, role="input")
    inner = tuple(node for node in nodes if node.outputs[0] not in left)
    apart = Graph(
        tensors=tuple(tensors),
        nodes=inner,
        inputs=inputs,
        outputs=(*crossing, *left.values()),
        constants=graph.constants,
        derived=MappingProxyType({i: what for i, what in graph.derived.items() if i in inputs}),
    )
    return Segment(
        nodes=nodes,
        graph=_renumber_graph(apart),
        inputs=inputs,
        outputs=(*crossing, *left),
        mixes=any(node.mixes for node in nodes),
        tail=nodes[0].tail,
        predicate=nodes[0].predicate,
    )


def _is_state(tensors: list[Tensor], node: Node) -> bool:
    return tensors[node.outputs[0]].role == "state"


def _renumber_graph(graph: Graph) -> Graph:
    """Remove unused tensors; the order of inputs stays."""
    used = {*graph.inputs, *graph.outputs, *(i for node in graph.nodes for i in (*node.inputs, *node.outputs))}
    number: Mapping[int, int] = {old: new for new, old in enumerate(sorted(used))}
    return Graph(
        tensors=tuple(graph.tensors[i] for i in sorted(used)),
        nodes=tuple(
            replace(
                node,
                inputs=tuple(number[i] for i in node.inputs),
                outputs=tuple(number[i] for i in node.outputs),
                predicate=None,
            )
            for node in graph.nodes
        ),
        inputs=tuple(number[i] for i in graph.inputs),
        outputs=tuple(number[i] for i in graph.outputs),
        constants=MappingProxyType({number[i]: v for i, v in graph.constants.items() if i in number}),
        derived=MappingProxyType({number[i]: what for i, what in graph.derived.items()}),
    )
