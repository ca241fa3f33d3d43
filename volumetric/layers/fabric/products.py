"""Products of many nodes with weights of their own, of groups of them, or of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import numpy as np

from volumetric._typing import Array
from volumetric.graph.build import GraphBuilder

MOST_PARTS = 6
"""Products that nodes in groups are cut into; of more, each node has a matrix of its own."""


def by_node(work: GraphBuilder, x: int, weight: int, bias: int | None = None) -> int:
    """Emit ``x w + b`` for ``[n, B, K]``, ``[n or 1, K, N]`` and ``[n, N]``."""
    n, batch, k = work.shape(x)
    sets, _, wide = work.shape(weight)
    if sets == n:
        return work.gemm(x, weight, bias)
    y = work.reshape(work.gemm(work.reshape(x, (1, n * batch, k)), weight), (n, batch, wide))
    return y if bias is None else work.binary("add", y, work.reshape(bias, (n, 1, wide)))


def chosen(work: GraphBuilder, sets: int, ids: Array) -> int:
    """Emit the set of weights of each node, unless all have one, or each its own: then `sets` as it is."""
    count, *rest = work.shape(sets)
    if count == 1 or np.array_equal(ids, np.arange(count)):
        return sets
    table = work.reshape(sets, (count, prod(rest)))
    found = work.gather_rows(table, work.constant(np.asarray(ids, np.int32), "sets"))
    return work.reshape(found, (len(ids), *rest))


def turned(work: GraphBuilder, weight: int) -> int:
    """Emit matrices ``[g, out, in]`` as ``[g, in, out]``."""
    return work.permute(weight, (0, 2, 1))


def joined(work: GraphBuilder, inner: int, outer: int) -> int:
    """Emit ``(outer inner)ᵀ`` for ``[in, K]`` and ``[g, out, in]``: ``[g, K, out]``."""
    wide, narrow = work.shape(inner)
    return work.gemm(work.reshape(inner, (1, wide, narrow)), outer, trans_a=True, trans_b=True)


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes from `start` on, of which each `count` have one matrix; their numbers are `ids`."""

    start: int
    count: int
    ids: tuple[int, ...]


def parts_of(groups: Array) -> tuple[Part, ...]:
    """Cut nodes, whose matrices are `groups`, into products of groups of equal size."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    for group, of in groupby(groups.tolist()):
        count = len(list(of))
        runs.append((start, count, group))
        start += count
    parts = [
        Part(some[0][0], count, tuple(group for _, _, group in some))
        for count, of in groupby(runs, key=lambda run: run[1])
        for some in [list(of)]
    ]
    return tuple(parts) if len(parts) <= MOST_PARTS else (Part(0, 1, tuple(groups.tolist())),)


def by_group(work: GraphBuilder, x: int, parts: Sequence[Part], weights: Sequence[int]) -> int:
    """Emit ``x w`` for ``[n, B, K]``, with ``[groups, K, N]`` for each part."""
    _, batch, k = work.shape(x)
    made: list[int] = []
    for part, weight in zip(parts, weights, strict=True):
        sets, count = len(part.ids), part.count
        own = work.part(x, 0, part.start, part.start + sets * count)
        y = work.gemm(work.reshape(own, (sets, count * batch, k)), weight)
        made.append(work.reshape(y, (sets * count, batch, work.shape(weight)[2])))
    return work.concat(made, 0)
