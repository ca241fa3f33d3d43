"""Facts of a declaration: nodes in the order of computation, and their edges as arrays.

Nodes are renumbered: inputs, then cells, population by population, then outputs. Cells that share a matrix of keys and
values are adjacent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.fabric.layer.cell_populations import SLSTM, CellPopulation, InPort, OutPort
from volumetric.fabric.layer.edge_rules import EdgeList, ExplicitEdges, NodeRoles, Rule, refuse_many
from volumetric.fabric.layer.node_graphs import Graph, Lattice
from volumetric.fabric.layer.node_sets import ids_of


@dataclass(frozen=True, slots=True)
class FabricDeclaration:
    """The declaration from which facts are computed."""

    graph: Graph
    connectivity: tuple[Rule, ...]
    inputs: tuple[InPort, ...]
    outputs: tuple[OutPort, ...]
    populations: tuple[CellPopulation, ...]
    kv_tile: tuple[int, ...] | None
    without: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class FabricFacts:
    """Nodes and edges. Do not write to the arrays.

    Attributes
    ----------
    order : id of each node, int64 ``[N]``
    coords : coordinates of nodes, float64 ``[N, axes]``
    inputs, cells, outputs : number of nodes of each kind, in this order
    starts : first edge of each receiver, cells and then outputs, and the end, int64 ``[R + 1]``
    senders : sender of each edge, int32 ``[E]``; the edges of a receiver are sorted by distance, then by id
    distance : distance of each edge, float64 ``[E]``
    delay : delay of each edge in rows, int32 ``[E]``
    ports : input or output → its nodes, as rows of its kind
    populations : name → its nodes, as rows of cells
    groups : matrix of keys and values of each sender, int64 ``[inputs + cells]``
    shares : population → set of weights of each of its nodes, int64 ``[n]``
    silent : senders whose public output is always 0, bool ``[inputs + cells]``
    """

    order: Array
    coords: Array
    inputs: int
    cells: int
    outputs: int
    starts: Array
    senders: Array
    distance: Array
    delay: Array
    ports: Mapping[str, slice]
    populations: Mapping[str, slice]
    groups: Array
    shares: Mapping[str, Array]
    silent: Array

    @property
    def senders_count(self) -> int:
        """Number of nodes that can be senders."""
        return self.inputs + self.cells

    @property
    def receivers(self) -> Array:
        """Receiver of each edge, as a row of cells and outputs, int64 ``[E]``."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def to_cells(self) -> int:
        """Number of edges that end at cells; the edges after them end at outputs."""
        return int(self.starts[self.cells])

    @cached_property
    def cell_delays(self) -> list[int]:
        """Delays of the edges that end at cells, ascending; 1 if there are no edges."""
        return np.unique(self.delay[: self.to_cells]).tolist() or [1]

    @cached_property
    def output_delays(self) -> list[int]:
        """Delays of the edges that end at outputs, ascending."""
        return np.unique(self.delay[self.to_cells :]).tolist() or [1]


@lru_cache(maxsize=32)
def facts_of(declared: FabricDeclaration) -> FabricFacts:
    """Return the facts of a declaration.

    Raises
    ------
    SpecError : a node has two roles or none, a port or population has no nodes left, or there are too many edges
    """
    graph = declared.graph
    there = _existing_nodes(graph, declared.without)
    ports = {port.name: ids_of(port.nodes, graph, f"input {port.name!r}") for port in declared.inputs}
    handed = {port.name: ids_of(port.nodes, graph, f"output {port.name!r}") for port in declared.outputs}
    role = _check_disjoint(
        {**{f"input {n!r}": i for n, i in ports.items()}, **{f"output {n!r}": i for n, i in handed.items()}}
    )
    inputs, outputs = np.zeros(graph.count, bool), np.zeros(graph.count, bool)
    for ids in ports.values():
        inputs[ids] = True
    for ids in handed.values():
        outputs[ids] = True
    kv = _groups(graph, declared.kv_tile)
    cells = _populations(graph, declared.populations, role, kv)
    if declared.without:
        ports, handed = _remaining_nodes("input", ports, there), _remaining_nodes("output", handed, there)
        cells = {name: _by_group(ids, kv) for name, ids in _remaining_nodes("population", cells, there).items()}
    order = np.concatenate([*ports.values(), *cells.values(), *handed.values()])
    place = np.full(graph.count, -1)
    place[order] = np.arange(len(order))
    counts = [sum(map(len, ids)) for ids in (ports.values(), cells.values(), handed.values())]
    coords = graph.coords()
    edges = _edges(declared.connectivity, NodeRoles(graph, coords, inputs, outputs))
    if declared.without:
        keep = there[edges[0]] & there[edges[1]]
        edges = tuple(column[keep] for column in edges)
    receivers = place[edges[0]] - counts[0]
    by = np.lexsort((edges[1], edges[2], receivers))
    starts = np.searchsorted(receivers[by], np.arange(counts[1] + counts[2] + 1))
    _, groups = np.unique(kv[order[: counts[0] + counts[1]]], return_inverse=True)
    shares = {p.name: _weight_shares(graph, p, cells[p.name]) for p in declared.populations}
    silent = [np.full(len(cells[p.name]), isinstance(p.cell, SLSTM) and p.cell.silent) for p in declared.populations]
    return FabricFacts(
        order=order,
        coords=coords[order],
        inputs=counts[0],
        cells=counts[1],
        outputs=counts[2],
        starts=starts,
        senders=place[edges[1][by]].astype(np.int32),
        distance=edges[2][by],
        delay=edges[3][by].astype(np.int32),
        ports={**_slices(ports), **_slices(handed)},
        populations=_slices(cells),
        groups=groups.reshape(-1),
        shares=shares,
        silent=np.concatenate([np.zeros(counts[0], bool), *silent]),
    )


def _existing_nodes(graph: Graph, without: tuple[int, ...]) -> Array:
    """Return which nodes of a graph exist, bool ``[N]``."""
    there = np.ones(graph.count, bool)
    for node in without:
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < graph.count:
            raise SpecError(f"without: there is no node {node!r}", hint=f"nodes are 0 … {graph.count - 1}")
        if not there[node]:
            raise SpecError(f"without names node {node} twice")
        there[node] = False
    return there


def _remaining_nodes(what: str, named: Mapping[str, Array], there: Array) -> dict[str, Array]:
    """Return the existing nodes of each port or population."""
    left = {name: ids[there[ids]] for name, ids in named.items()}
    for name, ids in left.items():
        if not ids.size:
            raise SpecError(f"{what} {name!r} is left without nodes", hint="keep at least one of its nodes")
    return left


def _check_disjoint(named: Mapping[str, Array]) -> dict[int, str]:
    """Return the role of each node that has one; raise `SpecError` if a node has two."""
    role: dict[int, str] = {}
    for name, ids in named.items():
        for node in ids.tolist():
            if node in role:
                raise SpecError(f"node {node} belongs to {role[node]} and to {name}", hint="a node has one role")
            role[node] = name
    return role


def _populations(
    graph: Graph, populations: Sequence[CellPopulation], role: Mapping[int, str], kv: Array
) -> dict[str, Array]:
    """Return the cells of each population; cells that share a matrix of keys and values are adjacent."""
    free = np.ones(graph.count, bool)
    free[list(role)] = False
    owner = np.full(graph.count, -1)
    cells: dict[str, Array] = {}
    rest = [p for p in populations if p.nodes is None]
    if len(rest) > 1:
        raise SpecError(
            f"populations {rest[0].name!r} and {rest[1].name!r} both have no `nodes`",
            hint="only one population can take the remaining nodes: list the nodes of the others",
        )
    for number, of in enumerate(populations):
        if of.nodes is None:
            continue
        ids = ids_of(of.nodes, graph, f"population {of.name!r}")
        ids = ids[free[ids]]
        twice = ids[owner[ids] >= 0]
        if twice.size:
            other = populations[int(owner[twice[0]])].name
            raise SpecError(f"node {twice[0]} belongs to populations {other!r} and {of.name!r}")
        owner[ids] = number
        cells[of.name] = ids
    left = np.flatnonzero(free & (owner < 0))
    if rest:
        cells[rest[0].name] = left
    elif left.size:
        raise SpecError(
            f"{left.size:,} nodes, for example node {left[0]}, belong to no population and no port",
            hint="omit `nodes` of one population: it takes all remaining nodes",
        )
    for name, ids in cells.items():
        if not ids.size:
            raise SpecError(f"population {name!r} has no nodes", hint="nodes of ports do not count")
    return {p.name: _by_group(cells[p.name], kv) for p in populations}


def _by_group(ids: Array, kv: Array) -> Array:
    _, group, counts = np.unique(kv[ids], return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    return ids[np.lexsort((ids, group, counts[group]))]


def _groups(graph: Graph, tile: tuple[int, ...] | None) -> Array:
    if tile is None:
        if not isinstance(graph, Lattice):
            return np.zeros(graph.count, np.int64)
        tile = tuple(max(1, size // 4) for size in graph.sizes)
    return graph.tiles(tile)


def _weight_shares(graph: Graph, of: CellPopulation, ids: Array) -> Array:
    """Return the set of weights of each node of a population."""
    if of.share == "none":
        return np.arange(len(ids))
    if of.tile is None:
        return np.zeros(len(ids), np.int64)
    return np.unique(graph.tiles(of.tile)[ids], return_inverse=True)[1].reshape(-1)


def _edges(rules: Sequence[Rule], of: NodeRoles) -> tuple[Array, Array, Array, Array]:
    """Return receivers, senders, distances and delays of all edges.

    If several rules yield the same edge, explicit edges take precedence, else the first rule.
    """
    parts: list[tuple[Array, Array, Array, Array]] = []
    count = 0
    for rule in sorted(rules, key=lambda rule: not isinstance(rule, ExplicitEdges)):
        for edges in rule.find(of):
            keep = of.allowed(edges.receivers, edges.senders)
            if not edges.loops:
                keep &= edges.receivers != edges.senders
            parts.append(_part(edges, keep, rule.delay))
            count += int(keep.sum())
            refuse_many(count)
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int32)
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    pairs = joined[0] * np.int64(of.graph.count) + joined[1]
    written = slice(sum(len(rule.edges) for rule in rules if isinstance(rule, ExplicitEdges)))
    _refuse_two(pairs[written], *(column[written] for column in joined))
    _, first = np.unique(pairs, return_index=True)
    receivers, senders, distance, delay = (column[first] for column in joined)
    return receivers, senders, distance, delay


def _refuse_two(pairs: Array, receivers: Array, senders: Array, distance: Array, delay: Array) -> None:
    """Raise `SpecError` if an explicit edge, by the number of its pair, has two distances or delays."""
    _, places, edge = np.unique(pairs, return_index=True, return_inverse=True)
    first = places[edge.reshape(-1)]
    two = np.flatnonzero((distance != distance[first]) | (delay != delay[first]))
    if two.size:
        n, before = int(two[0]), int(first[two[0]])
        raise SpecError(
            f"duplicate explicit edge from node {senders[n]} to node {receivers[n]}: with distance "
            f"{distance[before]:g} and delay {delay[before]}, and with distance {distance[n]:g} and delay {delay[n]}",
            hint="remove one of them",
        )


def _part(edges: EdgeList, keep: Array, delay: int) -> tuple[Array, Array, Array, Array]:
    receivers = edges.receivers[keep]
    return receivers, edges.senders[keep], edges.distance[keep], np.full(len(receivers), delay, np.int32)


def _slices(ids: Mapping[str, Array]) -> dict[str, slice]:
    ends = np.cumsum([len(i) for i in ids.values()]).tolist()
    return {name: slice(end - len(i), end) for end, (name, i) in zip(ends, ids.items(), strict=True)}
