"""Attention along edges, sparse or as dense matrix products; products of nodes with weights; masks of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.edge_attention import EdgeLists, edge_attend, edges_of

if TYPE_CHECKING:
    from volumetric.fabric.layer.fabric_layer import Fabric
    from volumetric.layers.emit_scope import Scope

DENSE = 16
"""Minimum number of receivers with the same senders for a dense matrix product."""


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """Receivers with common `senders`, except themselves; `far` has the distances, infinite without an edge."""

    receivers: Array
    senders: Array
    far: Array


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """Edges of the receivers of a kind, split into sparse and dense parts.

    Attributes
    ----------
    rest : receivers with sparse edges
    edges : edges of `rest`
    far : distances of `edges`
    blocks : the other receivers, in dense blocks
    order : row of each receiver in the concatenated results; None if they are in order
    """

    rest: Array
    edges: EdgeLists
    far: Array
    blocks: tuple[DenseBlock, ...]
    order: Array | None


def reading_of(starts: Array, senders: Array, far: Array, own: Array, count: int) -> ReadingPlan:
    """Split edges into sparse and dense parts.

    Parameters
    ----------
    starts, senders, far : edges by receiver, with their distances
    own : each receiver as a sender, -1 if it is not a sender
    count : number of senders
    """
    sets: dict[bytes, list[int]] = {}
    for r in range(len(starts) - 1):
        mine = senders[starts[r] : starts[r + 1]]
        closed = np.union1d(mine, own[r : r + 1][own[r : r + 1] >= 0]) if len(mine) else mine
        sets.setdefault(np.asarray(closed, np.int64).tobytes(), []).append(r)
    blocks: list[DenseBlock] = []
    for key, receivers in sets.items():
        closed = np.frombuffer(key, np.int64)
        if len(receivers) >= DENSE and len(closed):
            table = np.full((len(receivers), len(closed)), np.inf)
            for row, r in enumerate(receivers):
                mine = slice(starts[r], starts[r + 1])
                table[row, np.searchsorted(closed, senders[mine])] = far[mine]
            blocks.append(DenseBlock(np.array(receivers), closed, table))
    dense = np.concatenate([block.receivers for block in blocks]) if blocks else np.zeros(0, np.int64)
    rest = np.setdiff1d(np.arange(len(starts) - 1), dense)
    counts = np.diff(starts)[rest]
    which = (
        np.concatenate([np.arange(int(starts[r]), int(starts[r + 1])) for r in rest.tolist()]) if len(rest) else dense
    )
    edges = edges_of(np.append(0, np.cumsum(counts)), senders[which], count)
    order = np.argsort(np.concatenate([rest, dense]), kind="stable")
    in_order = np.array_equal(order, np.arange(len(order)))
    return ReadingPlan(rest, edges, far[which], tuple(blocks), None if in_order else order)


def biases(work: GraphBuilder, reading: ReadingPlan, cost: int | None, sharpness: float) -> dict[str, int]:
    """Emit the score biases of distances, by the names of `attend`; `cost` ``[1, heads]`` is the learned λ, if any."""
    bias = {"far": _scaled_distances(work, reading.far[:, None], cost, sharpness)}
    for n, block in enumerate(reading.blocks):
        rows, columns = block.far.shape
        there = np.isfinite(block.far)
        flat = _scaled_distances(work, np.where(there, block.far, 0).reshape(-1, 1), cost, sharpness)
        heads = work.shape(flat)[1]
        by_head = work.reshape(work.permute(flat, (1, 0)), (heads, rows, columns))
        if not there.all():
            off = np.where(there, 0.0, -np.inf)[None]
            by_head = work.binary("add", by_head, work.constant(off, "no edge"))
        bias[f"far.{n}"] = by_head
    return bias


def _scaled_distances(work: GraphBuilder, far: Array, cost: int | None, sharpness: float) -> int:
    if cost is None:
        return work.constant(-sharpness * far, "distance")
    return work.binary("mul", work.constant(-far, "distance"), cost)


def attend(work: GraphBuilder, q: int, kv: int, reading: ReadingPlan, bias: Mapping[str, int], heads: int) -> int:
    """Emit messages ``[R, B, heads · e]`` from ``q [R, B or 1, heads · d]`` and ``kv [S, B, heads · (d + e)]``."""
    messages: list[int] = []
    if len(reading.rest):
        messages.append(edge_attend(work, _rows(work, q, reading.rest), kv, bias["far"], reading.edges, heads))
    messages += [_dense(work, q, kv, block, bias[f"far.{n}"], heads) for n, block in enumerate(reading.blocks)]
    m = work.concat(messages, 0)
    return m if reading.order is None else _rows(work, m, reading.order)


def _rows(work: GraphBuilder, x: int, ids: Sequence[int] | Array) -> int:
    """Emit nodes by index."""
    count, batch, width = work.shape(x)
    first, last = int(ids[0]), int(ids[-1]) + 1
    if np.array_equal(ids, np.arange(first, last)):
        return work.part(x, 0, first, last)
    table = work.reshape(x, (count, batch * width))
    gathered = work.gather_rows(table, work.constant(np.asarray(ids, np.int32), "nodes"))
    return work.reshape(gathered, (len(ids), batch, width))


def _dense(work: GraphBuilder, q: int, kv: int, block: DenseBlock, bias: int, heads: int) -> int:
    """Emit dense attention, as two matrix products for each stream and head."""
    q, kv = _rows(work, q, block.receivers), _rows(work, kv, block.senders)
    receivers, own, width = work.shape(q)
    senders, batch, wide = work.shape(kv)
    d, e = width // heads, (wide - width) // heads

    def split(x: int, nodes: int, streams: int, each: int) -> int:
        apart = work.permute(work.reshape(x, (nodes, streams, heads, each)), (1, 2, 0, 3))
        return work.reshape(apart, (streams * heads, nodes, each))

    k, v = work.split(kv, (width, wide - width), 2)
    asks, keys = split(work.affine(q, d**-0.5), receivers, own, d), split(k, senders, batch, d)
    scores = work.gemm(asks, keys, trans_b=True, groups=batch * heads)
    apart = work.reshape(scores, (batch, heads, receivers, senders))
    apart = work.binary("add", apart, work.reshape(bias, (1, *work.shape(bias))))
    weights = work.softmax(work.reshape(apart, (batch * heads * receivers, senders)))
    weights = work.reshape(weights, (batch * heads, receivers, senders))
    m = work.reshape(work.gemm(weights, split(v, senders, batch, e)), (batch, heads, receivers, e))
    return work.reshape(work.permute(m, (2, 0, 1, 3)), (receivers, batch, heads * e))


def living_of(scope: Scope, spec: Fabric) -> int | None:
    """Emit the mask of living nodes, 1 or 0 ``[nodes, 1]``, in their order; None: the fabric is not dynamic."""
    if not spec.dynamic:
        return None
    work, buffer = scope.work, scope.buffers(spec)["living"]
    there = work.binary("greater", work.unary(buffer, "abs"), work.scalar(0.0))
    return work.reshape(there, (*work.shape(buffer), 1))


def first_of(spec: Fabric, state: str) -> int:
    """Return the first node of a state: ``"shown"``, or a state of a population."""
    facts = spec.facts
    return facts.inputs + (0 if state == "shown" else facts.populations[state.rpartition(".")[0]].start)


def shown_by(work: GraphBuilder, living: int | None, x: int, first: int) -> int:
    """Emit ``[n, …]`` of the nodes from `first` on, 0 for masked nodes, even for NaN."""
    if living is None:
        return x
    count, *rest = work.shape(x)
    own = work.reshape(work.part(living, 0, first, first + count), (count, *(1 for _ in rest)))
    return work.binary("mul_nonzero", x, own)


def mask_senders(work: GraphBuilder, reading: ReadingPlan, bias: Mapping[str, int], living: int) -> dict[str, int]:
    """Emit the score biases by the names of `attend`, with -inf for edges from masked nodes.

    Parameters
    ----------
    bias : biases of edges and blocks
    living : ``[senders, 1]``; not repeated for each delay
    """
    count = work.shape(living)[0]

    def of(senders: Array) -> int:
        return work.gather_rows(living, work.constant(np.asarray(senders % count, np.int32), "senders"))

    masked = dict(bias)
    if len(reading.rest):
        masked["far"] = work.binary("mask", bias["far"], of(reading.edges.senders))
    for n, block in enumerate(reading.blocks):
        there = work.reshape(of(block.senders), (1, 1, len(block.senders)))
        masked[f"far.{n}"] = work.binary("mask", bias[f"far.{n}"], there)
    return masked


MOST_PARTS = 6
"""Maximum number of grouped products; with more, each node gets its own copy of its matrix."""


def by_node(work: GraphBuilder, x: int, weight: int, bias: int | None = None) -> int:
    """Emit ``x w + b`` for ``[n, B, K]``, ``[n or 1, K, N]`` and ``[n, N]``."""
    n, batch, k = work.shape(x)
    sets, _, wide = work.shape(weight)
    if sets == n:
        return work.gemm(x, weight, bias)
    y = work.reshape(work.gemm(work.reshape(x, (1, n * batch, k)), weight), (n, batch, wide))
    return y if bias is None else work.binary("add", y, work.reshape(bias, (n, 1, wide)))


def select_sets(work: GraphBuilder, sets: int, ids: Array) -> int:
    """Emit the set of weights of each node; returns `sets` if all nodes share one set, or each has its own."""
    count, *rest = work.shape(sets)
    if count == 1 or np.array_equal(ids, np.arange(count)):
        return sets
    table = work.reshape(sets, (count, prod(rest)))
    gathered = work.gather_rows(table, work.constant(np.asarray(ids, np.int32), "sets"))
    return work.reshape(gathered, (len(ids), *rest))


def transpose_matrices(work: GraphBuilder, weight: int) -> int:
    """Emit matrices ``[g, out, in]`` as ``[g, in, out]``."""
    return work.permute(weight, (0, 2, 1))


def merge_matrices(work: GraphBuilder, inner: int, outer: int) -> int:
    """Emit ``(outer inner)ᵀ`` for ``[in, K]`` and ``[g, out, in]``: ``[g, K, out]``."""
    wide, narrow = work.shape(inner)
    return work.gemm(work.reshape(inner, (1, wide, narrow)), outer, trans_a=True, trans_b=True)


@dataclass(frozen=True, slots=True)
class MatrixGroups:
    """Nodes from `start` on, where each run of `count` nodes shares a matrix; `ids` are the matrices."""

    start: int
    count: int
    ids: tuple[int, ...]


def parts_of(groups: Array) -> tuple[MatrixGroups, ...]:
    """Partition nodes, whose matrices are `groups`, into products of groups of equal size."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    for group, of in groupby(groups.tolist()):
        count = len(list(of))
        runs.append((start, count, group))
        start += count
    parts = [
        MatrixGroups(some[0][0], count, tuple(group for _, _, group in some))
        for count, of in groupby(runs, key=lambda run: run[1])
        for some in [list(of)]
    ]
    return tuple(parts) if len(parts) <= MOST_PARTS else (MatrixGroups(0, 1, tuple(groups.tolist())),)


def by_group(work: GraphBuilder, x: int, parts: Sequence[MatrixGroups], weights: Sequence[int]) -> int:
    """Emit ``x w`` for ``[n, B, K]``, with ``[groups, K, N]`` for each part."""
    _, batch, k = work.shape(x)
    products: list[int] = []
    for part, weight in zip(parts, weights, strict=True):
        sets, count = len(part.ids), part.count
        own = work.part(x, 0, part.start, part.start + sets * count)
        y = work.gemm(work.reshape(own, (sets, count * batch, k)), weight)
        products.append(work.reshape(y, (sets * count, batch, work.shape(weight)[2])))
    return work.concat(products, 0)
