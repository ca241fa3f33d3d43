"""Edges: rules of connectivity, each of which yields edges for a block of receivers at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.fabric.layer.node_graphs import Graph, Lattice
from volumetric.layers.field_checks import check_number, check_whole, whole_numbers, whole_pairs

MOST_EDGES = 10**7
"""Upper bound (exclusive) on the number of edges of a fabric."""
BYTES = 28
"""Bytes of an edge in a fabric's facts and in its tensors of ids."""
BLOCK = 2**21
"""Number of node pairs per block."""


@dataclass(frozen=True, slots=True)
class EdgeList:
    """Edges: receivers, senders, distances, and whether self-loops are allowed."""

    receivers: Array
    senders: Array
    distance: Array
    loops: bool = False


@dataclass(frozen=True, slots=True)
class NodeRoles:
    """Coordinates of nodes, ``[N, axes]``, and which of them are input and output nodes, bool ``[N]``."""

    graph: Graph
    coords: Array
    inputs: Array
    outputs: Array

    def allowed(self, receivers: Array, senders: Array) -> Array:
        """Return whether each pair may be an edge, regardless of self-loops."""
        no = self.inputs[receivers] | self.outputs[senders] | (self.inputs[senders] & self.outputs[receivers])
        return ~no


class LocalRadius(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="local_radius"
):
    """All nodes at a distance of at most `radius`. `delay` is the delay of edges in rows, as in the other rules."""

    radius: float
    delay: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        check_number("LocalRadius: radius", self.radius)
        check_whole("LocalRadius: delay", self.delay)

    def find(self, of: NodeRoles) -> Iterator[EdgeList]:
        """Yield its edges."""
        if isinstance(of.graph, Lattice):
            refuse_many(_pairs(of.graph, _stencil(of.graph, 0.0, self.radius)))
        return _pairs_within(of, 0.0, self.radius)


class Annulus(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="annulus"):
    """The `count` nearest nodes at distances in (`inner`, `outer`]; ties go to the lower ids."""

    inner: float
    outer: float
    count: int
    delay: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        check_number("Annulus: inner", self.inner, above=-1e-9)
        check_number("Annulus: outer", self.outer, above=self.inner)
        check_whole("Annulus: count", self.count)
        check_whole("Annulus: delay", self.delay)

    def find(self, of: NodeRoles) -> Iterator[EdgeList]:
        """Yield its edges."""
        for edges in _pairs_within(of, self.inner, self.outer):
            order = np.lexsort((edges.senders, edges.distance, edges.receivers))
            receivers = edges.receivers[order]
            rank = np.arange(len(order)) - np.searchsorted(receivers, receivers)
            nearest = order[rank < self.count]
            yield EdgeList(edges.receivers[nearest], edges.senders[nearest], edges.distance[nearest])


class SmallWorld(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="small_world"
):
    """`count` random nodes, drawn for each receiver (Watts and Strogatz 1998)."""

    count: int
    seed: int = 0
    delay: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("SmallWorld: count", self.count)
        check_whole("SmallWorld: seed", self.seed, 0)
        check_whole("SmallWorld: delay", self.delay)

    def find(self, of: NodeRoles) -> Iterator[EdgeList]:
        """Yield its edges."""
        refuse_many(self.count * int((~of.inputs).sum()))
        yield _draw_senders(of, self.count, self.seed, None)


class Columns(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="columns"):
    """All nodes within a tile of a lattice read each other, and each reads `fibres` random nodes of other tiles."""

    tile: tuple[int, ...]
    fibres: int = 0
    seed: int = 0
    delay: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        force_setattr(self, "tile", whole_numbers("Columns: tile", self.tile))
        for side in self.tile:
            check_whole("Columns: a side of a tile", side)
        check_whole("Columns: fibres", self.fibres, 0)
        check_whole("Columns: seed", self.seed, 0)
        check_whole("Columns: delay", self.delay)

    def find(self, of: NodeRoles) -> Iterator[EdgeList]:
        """Yield its edges."""
        tiles = of.graph.tiles(self.tile)
        order = np.argsort(tiles, kind="stable")
        counts = np.bincount(tiles)
        refuse_many(int((counts.astype(np.float64) ** 2).sum()))
        ends = np.cumsum(counts)
        for first, last in zip((ends - counts).tolist(), ends.tolist(), strict=True):
            members = np.sort(order[first:last])
            receivers = np.repeat(members, len(members))
            yield _with_distances(of, receivers, np.tile(members, len(members)))
        if self.fibres:
            refuse_many(self.fibres * int((~of.inputs).sum()))
            yield _draw_senders(of, self.fibres, self.seed, tiles)


class ExplicitEdges(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="explicit_edges"
):
    """Pairs (receiver, sender), also self-loops; `distance` for all of them, or None for the distance of the nodes.

    They take precedence over other rules: their edges have the distance and the delay of this rule.
    """

    edges: tuple[tuple[int, int], ...] = ()
    distance: float | None = 1.0
    delay: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        force_setattr(self, "edges", whole_pairs("ExplicitEdges: edges", self.edges))
        if not self.edges:
            raise SpecError("ExplicitEdges: there are no edges", hint="pass pairs (receiver, sender)")
        if self.distance is not None:
            check_number("ExplicitEdges: distance", self.distance, above=-1e-9)
        check_whole("ExplicitEdges: delay", self.delay)

    def find(self, of: NodeRoles) -> Iterator[EdgeList]:
        """Yield its edges."""
        pairs = np.asarray(self.edges, np.int64)
        wrong = pairs[(pairs < 0) | (pairs >= of.graph.count)]
        if wrong.size:
            raise SpecError(f"an edge names node {wrong[0]}", hint=f"nodes are 0 … {of.graph.count - 1}")
        edges = _with_distances(of, pairs[:, 0], pairs[:, 1])
        refused = np.flatnonzero(~of.allowed(pairs[:, 0], pairs[:, 1]))
        if refused.size:
            receiver, sender = pairs[refused[0]].tolist()
            raise SpecError(
                f"the edge from node {sender} to node {receiver} is not possible",
                hint="an input node receives nothing, an output node sends nothing, and no edge joins the two directly",
            )
        distance = edges.distance if self.distance is None else np.full(len(pairs), float(self.distance))
        yield EdgeList(pairs[:, 0], pairs[:, 1], distance, loops=True)


Rule: TypeAlias = LocalRadius | Annulus | SmallWorld | Columns | ExplicitEdges
RULES = (LocalRadius, Annulus, SmallWorld, Columns, ExplicitEdges)


def refuse_many(count: float) -> None:
    """Raise `SpecError` if the number of edges is too large."""
    if count >= MOST_EDGES:
        raise SpecError(
            f"{count:,.0f} edges would take {count * BYTES / 2**30:,.1f} GiB; fewer than {MOST_EDGES:,} are possible",
            hint="use a smaller radius, count or tile",
        )


def _with_distances(of: NodeRoles, receivers: Array, senders: Array) -> EdgeList:
    return EdgeList(receivers, senders, of.graph.distances(of.coords[receivers], of.coords[senders]))


def _pairs_within(of: NodeRoles, inner: float, outer: float) -> Iterator[EdgeList]:
    """Yield all pairs at distances in (`inner`, `outer`], grouped by receiver."""
    readers = np.flatnonzero(~of.inputs)
    if isinstance(of.graph, Lattice):
        offsets = _stencil(of.graph, inner, outer)
        sizes = np.asarray(of.graph.sizes)
        part = max(1, BLOCK // max(1, len(offsets)))
        for first in range(0, len(readers), part):
            some = readers[first : first + part]
            at = of.coords[some][:, None] + offsets
            at = at % sizes if of.graph.wrap else at
            inside = ((at >= 0) & (at < sizes)).all(-1)
            receivers = np.broadcast_to(some[:, None], inside.shape)[inside]
            senders = np.asarray(np.ravel_multi_index(list(at[inside].astype(np.int64).T), of.graph.sizes))
            yield _edges_within(of, _with_distances(of, receivers, senders), inner, outer)
        return
    part = max(1, BLOCK // of.graph.count)
    for first in range(0, len(readers), part):
        some = readers[first : first + part]
        receivers = np.repeat(some, of.graph.count)
        every = np.tile(np.arange(of.graph.count), len(some))
        yield _edges_within(of, _with_distances(of, receivers, every), inner, outer)


def _edges_within(of: NodeRoles, edges: EdgeList, inner: float, outer: float) -> EdgeList:
    near = (edges.distance > max(inner, 0.0)) & (edges.distance <= outer) & of.allowed(edges.receivers, edges.senders)
    return EdgeList(edges.receivers[near], edges.senders[near], edges.distance[near])


def _pairs(graph: Lattice, offsets: Array) -> float:
    """Return the number of pairs of nodes at such distances."""
    if graph.wrap:
        return float(len(offsets)) * graph.count
    return float(np.prod(np.asarray(graph.sizes) - np.abs(offsets), -1).sum())


def _stencil(graph: Lattice, inner: float, outer: float) -> Array:
    """Return the offsets to all nodes in range, float64 ``[n, axes]``; with `wrap`, each node has one offset."""
    reach = math.floor(outer)
    ranges = []
    for size in graph.sizes:
        low, high = (-((size - 1) // 2), size // 2) if graph.wrap else (1 - size, size - 1)
        ranges.append(np.arange(max(low, -reach), min(high, reach) + 1, dtype=np.float64))
    refuse_many(float(math.prod(map(len, ranges))))
    every = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, len(ranges))
    length = np.sqrt((every * every).sum(1))
    return every[(length > inner) & (length > 0) & (length <= outer)]


def _draw_senders(of: NodeRoles, count: int, seed: int, tiles: Array | None) -> EdgeList:
    """Draw at most `count` senders for each receiver, from other tiles if there are tiles."""
    rng = np.random.Generator(np.random.Philox(seed))
    cells = np.flatnonzero(~of.inputs & ~of.outputs)
    shows = np.flatnonzero(~of.outputs)
    receivers: list[Array] = []
    senders: list[Array] = []
    for r in np.flatnonzero(~of.inputs).tolist():
        pool = cells if of.outputs[r] else shows
        drawn = np.zeros(0, np.int64)
        own = pool == r if tiles is None else tiles[pool] == tiles[r]
        free = len(pool) - int(own.sum())
        needed = min(count, free)
        if needed * 4 >= free:
            drawn = rng.permutation(pool[~own])[:needed]
        while len(drawn) < needed:
            more = pool[rng.integers(0, len(pool), 2 * count)]
            more = more[more != r] if tiles is None else more[tiles[more] != tiles[r]]
            _, first = np.unique(np.concatenate([drawn, more]), return_index=True)
            drawn = np.concatenate([drawn, more])[np.sort(first)][:needed]
        receivers.append(np.full(needed, r))
        senders.append(drawn)
    if not receivers:
        return EdgeList(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    return _with_distances(of, np.concatenate(receivers), np.concatenate(senders))
