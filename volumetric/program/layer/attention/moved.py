"""Rules without queries, and their nodes."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array
from volumetric.layers.base import ParamSpec
from volumetric.program.layer.attention.base import Attention, Pairs, Reading, attention, lowering
from volumetric.program.layer.attention.heads import affine, square_maps


def shares(visible: Array) -> Array:
    """Return the weight of each key in the mean of a query, ``[N, M]``: zeros for a query without keys."""
    return visible / visible.sum(1, keepdims=True).clip(1)


@attention("pooling")
class Pooling(Attention):
    """``a = W mean(v) + b``, equal for all queries with the same keys. It has no heads."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return square_maps(d, "proj.")


@attention("copy")
class Copy(Attention):
    """Row i of the source for query i, zeros beyond its end. It has neither parameters nor heads."""

    whole = True

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return ()


@attention("none")
class Nothing(Attention):
    """Writes no position."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return ()

    def written(self, pairs: Pairs) -> Array:
        return np.zeros(pairs.queries, np.bool_)


@lowering("pooling")
def _pooling(of: Reading) -> int:
    work, visible = of.work, of.rule.seen(of.pairs)
    edges, batch, d = of.size
    if visible is None:
        pooled = affine(work, of.p, "proj.", work.reduce(of.values, "mean", (2,)))
        return work.broadcast(pooled, (edges, batch, of.pairs.queries, d))
    lead, _, count, _ = work.shape(of.values)
    each = work.constant(shares(visible)[None], "shares")
    mean = work.gemm(each, work.reshape(of.values, (lead * batch, count, d)))
    return affine(work, of.p, "proj.", work.reshape(mean, (lead, batch, of.pairs.queries, d)))


@lowering("copy")
def _copy(of: Reading) -> int:
    count = min(of.pairs.queries, of.pairs.keys)
    beyond = of.pairs.queries - count
    return of.work.pad(of.work.part(of.values, 2, 0, count), (0, 0, 0, 0), (0, 0, beyond, 0))


@lowering("none")
def _none(of: Reading) -> int:
    edges, batch, d = of.size
    return of.work.zeros((edges, batch, of.pairs.queries, d))
