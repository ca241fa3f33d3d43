"""Nodes of rules that are made of several attentions."""

from __future__ import annotations

from volumetric.layers.program.attention.base import Reading, lowering
from volumetric.layers.program.attention.heads import affine, cross
from volumetric.layers.program.attention.mixture import Mixture
from volumetric.layers.program.attention.perceiver import COMPRESS, READOUT, Perceiver


@lowering("perceiver")
def _perceiver(of: Reading) -> int:
    work, rule = of.work, of.rule
    assert isinstance(rule, Perceiver)
    _, batch, d = of.size
    edges, count, _ = work.shape(of.p["latents"])
    latents = work.broadcast(work.reshape(of.p["latents"], (edges, 1, count, d)), (edges, batch, count, d))
    told = cross(work, of.p, rule.heads, latents, of.keys, of.values, prefix=COMPRESS)
    return cross(work, of.p, rule.heads, of.queries, told, told, prefix=READOUT)


@lowering("mixture")
def _mixture(of: Reading) -> int:
    work, rule = of.work, of.rule
    assert isinstance(rule, Mixture)
    parts = rule.ranges(of.pairs.keys)
    logits = work.part(affine(work, of.p, "router.", of.queries), 3, 0, len(parts))
    edges, batch, count, wide = work.shape(logits)
    rows = work.reshape(logits, (edges * batch * count, wide))
    if rule.top_k < wide:
        rows = work.keep_largest(rows, rule.top_k)
    weights = work.reshape(work.softmax(rows), (edges, batch, count, wide))
    made = []
    for j, (start, stop) in enumerate(parts):
        keys, values = (work.part(x, 2, start, stop) for x in (of.keys, of.values))
        own = cross(work, of.p, rule.heads, of.queries, keys, values, prefix=f"experts.{j}.")
        made.append(work.binary("mul_nonzero", own, work.part(weights, 3, j, j + 1)))
    return work.add(*made)
