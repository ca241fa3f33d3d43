"""Nodes of rules whose queries and keys meet head by head."""

from __future__ import annotations

from volumetric.graph.build import GraphBuilder
from volumetric.layers.program.attention.base import Reading, lowering
from volumetric.layers.program.attention.heads import (
    ByHeads,
    affine,
    asked,
    by_edge,
    cross,
    direction,
    flags,
    hidden,
    read,
    scores,
    softmax,
    together,
)
from volumetric.layers.program.attention.linear import LEAST
from volumetric.layers.program.attention.sparse import Sparse


def _rule(of: Reading) -> ByHeads:
    assert isinstance(of.rule, ByHeads)  # by its name
    return of.rule


@lowering("cross", "local", "random_fixed")
def _cross(of: Reading) -> int:
    rule = _rule(of)
    return cross(of.work, of.p, rule.heads, of.queries, of.keys, of.values, rule.seen(of.pairs))


@lowering("gated")
def _gated(of: Reading) -> int:
    work = of.work
    return work.binary("mul", _cross(of), by_edge(work, work.unary(of.p["gate"], "sigmoid")))


@lowering("sparse")
def _sparse(of: Reading) -> int:
    work, rule = of.work, _rule(of)
    assert isinstance(rule, Sparse)
    logits = hidden(work, scores(work, of.p, rule.heads, of.queries, of.keys), rule.seen(of.pairs))
    size = groups, count, wide = work.shape(logits)
    if rule.top_k < wide:
        best = work.keep_largest(work.reshape(logits, (groups * count, wide)), rule.top_k)
        logits = work.reshape(best, size)
    return read(work, of.p, rule.heads, softmax(work, logits), of.values)


@lowering("sigmoid")
def _sigmoid(of: Reading) -> int:
    work, rule = of.work, _rule(of)
    weights = work.unary(scores(work, of.p, rule.heads, of.queries, of.keys), "sigmoid")
    seen = rule.seen(of.pairs)
    if seen is not None:
        weights = work.binary("mul_nonzero", weights, flags(work, seen))
    return read(work, of.p, rule.heads, weights, of.values)


@lowering("cosine")
def _cosine(of: Reading) -> int:
    work, rule = of.work, _rule(of)
    q, k = (direction(work, asked(work, of.p, n, x, rule.heads)) for n, x in (("q.", of.queries), ("k.", of.keys)))
    logits = work.gemm(q, k, trans_b=True)
    groups, count, wide = work.shape(logits)
    edges = work.shape(of.p["temperature"])[0]
    by = work.reshape(logits, (edges, groups // edges, count, wide))
    logits = work.reshape(work.binary("mul", by, by_edge(work, of.p["temperature"])), (groups, count, wide))
    return read(work, of.p, rule.heads, softmax(work, hidden(work, logits, rule.seen(of.pairs))), of.values)


@lowering("linear")
def _linear(of: Reading) -> int:
    work, rule = of.work, _rule(of)
    q, k = (_feature(work, asked(work, of.p, n, x, rule.heads)) for n, x in (("q.", of.queries), ("k.", of.keys)))
    v, seen = asked(work, of.p, "v.", of.values, rule.heads), rule.seen(of.pairs)
    if seen is None:
        met = work.gemm(q, work.gemm(k, v, trans_a=True))
        total = work.gemm(q, work.reduce(k, "sum", (1,)), trans_b=True)
    else:
        weights = work.binary("mul_nonzero", work.gemm(q, k, trans_b=True), flags(work, seen))
        met, total = work.gemm(weights, v), work.reduce(weights, "sum", (2,))
    made = work.binary("div", met, work.affine(total, 1.0, LEAST))
    edges = work.shape(of.p["o.weight"])[0]
    return affine(work, of.p, "o.", together(work, made, edges, rule.heads))


def _feature(work: GraphBuilder, x: int) -> int:
    """``elu(x) + 1``."""
    zero = work.scalar(0.0)
    return work.add(work.binary("max", x, zero), work.unary(work.binary("min", x, zero), "exp"))
