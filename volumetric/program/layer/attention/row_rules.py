"""Rules without queries, and their nodes."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention.head_ops import affine, square_maps
from volumetric.program.layer.attention.rule_base import Attention, AttentionInputs, Pairs, lowering, register_rule


def mean_shares(visible: Array) -> Array:
    """Return the weight of each key in the mean of a query, ``[N, M]``: zeros for a query without keys."""
    return visible / visible.sum(1, keepdims=True).clip(1)


@register_rule("pooling")
class PoolingAttention(Attention):
    """``a = W mean(v) + b``, equal for all queries with the same keys. It has no heads."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return square_maps(d, "proj.")


@register_rule("copy")
class CopyAttention(Attention):
    """Row i of the source for query i, zeros beyond its end. It has neither parameters nor heads."""

    whole = True

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return ()


@register_rule("none")
class NoAttention(Attention):
    """Writes no position."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return ()

    def written_queries(self, pairs: Pairs) -> Array:
        return np.zeros(pairs.queries, np.bool_)


@lowering("pooling")
def _pooling(of: AttentionInputs) -> int:
    work, visible = of.work, of.rule.visible(of.pairs)
    edges, batch, d = of.size
    if visible is None:
        pooled = affine(work, of.p, "proj.", work.reduce(of.values, "mean", (2,)))
        return work.broadcast(pooled, (edges, batch, of.pairs.queries, d))
    lead, _, count, _ = work.shape(of.values)
    each = work.constant(mean_shares(visible)[None], "shares")
    mean = work.gemm(each, work.reshape(of.values, (lead * batch, count, d)))
    return affine(work, of.p, "proj.", work.reshape(mean, (lead, batch, of.pairs.queries, d)))


@lowering("copy")
def _copy(of: AttentionInputs) -> int:
    count = min(of.pairs.queries, of.pairs.keys)
    beyond = of.pairs.queries - count
    return of.work.pad(of.work.part(of.values, 2, 0, count), (0, 0, 0, 0), (0, 0, beyond, 0))


@lowering("none")
def _none(of: AttentionInputs) -> int:
    edges, batch, d = of.size
    return of.work.zeros((edges, batch, of.pairs.queries, d))
