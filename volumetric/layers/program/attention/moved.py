"""Nodes of rules that move what is read, or its mean."""

from __future__ import annotations

from volumetric.layers.program.attention.base import Reading, lowering
from volumetric.layers.program.attention.heads import affine
from volumetric.layers.program.attention.pooling import shares


@lowering("pooling")
def _pooling(of: Reading) -> int:
    work, seen = of.work, of.rule.seen(of.pairs)
    edges, batch, d = of.size
    if seen is None:
        made = affine(work, of.p, "proj.", work.reduce(of.values, "mean", (2,)))
        return work.broadcast(made, (edges, batch, of.pairs.queries, d))
    lead, _, count, _ = work.shape(of.values)
    each = work.constant(shares(seen)[None], "shares")
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
