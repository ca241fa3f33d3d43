"""Rules that scan their source in order, and their nodes."""

from __future__ import annotations

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.linear_scan import linear_scan
from volumetric.layers.dense import affine_params
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention.head_ops import affine, by_edge, softmax, square_maps
from volumetric.program.layer.attention.rule_base import (
    Attention,
    AttentionInputs,
    check_positive,
    lowering,
    register_rule,
)

EPS = 1e-5
"""Epsilon of the norm of queries."""


@register_rule("mamba")
class MambaAttention(Attention):
    """``a = W_o softmax(LN(q) pᵀ / √d) p + b_o``, where p are results of a scan over the source (Gu & Dao 2023).

    ``(x, z) = W_in v + b``, ``(r, B, C) = W_x x + b``, ``δ = softplus(W_dt r + b)``, and for each feature and each of
    `state_size` rates a = 1, 2, …: ``s ← e^{-δ a} s + δ B x``. Then ``p = (Σ s C + D x) · silu(z)``. It has no heads.

    Attributes
    ----------
    state_size : number of rates
    """

    whole = True

    state_size: int = 16

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "state_size")

    @staticmethod
    def rank(d: int) -> int:
        """Width of r."""
        return max(1, d // 16)

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return (
            *affine_params("in.", 2 * d, d, bias=True),
            *affine_params("x.", self.rank(d) + 2 * self.state_size, d, bias=True),
            *affine_params("dt.", d, self.rank(d), bias=True),
            ParamSpec(name="d", shape=(d,), init="ones", packable=False),
            ParamSpec(name="norm.weight", shape=(d,), init="ones", packable=False),
            ParamSpec(name="norm.bias", shape=(d,), init="zeros", packable=False),
            *affine_params("o.", d, d, bias=True),
        )


BOUND, LEAST = 10.0, 1e-6
"""Maximum magnitude of a key, and the term added to the denominator."""


@register_rule("rwkv")
class RwkvAttention(Attention):
    """``a = W_o (σ(r) · wkv) + b_o``, for query i over keys up to i (Peng et al. 2023, arXiv 2305.13048).

    With ``κ = exp(clip(k, ±10))`` and ``w = exp(-exp(decay))`` for each feature,
    ``wkv_t = (num + e^u κ_t v_t) / (den + e^u κ_t + 1e-6)``; then ``num ← w num + κ_t v_t`` and ``den ← w den + κ_t``.
    Queries after the last key use that of the last key. It has no heads.
    """

    whole = True

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return (
            *square_maps(d, "r.", "k.", "v.", "o."),
            ParamSpec(name="decay", shape=(d,), init="uniform", bounds=(-5.0, -5.0), packable=False),
            ParamSpec(name="bonus", shape=(d,), init="zeros", packable=False),
        )


@lowering("mamba")
def _mamba(of: AttentionInputs) -> int:
    work, p, rule = of.work, of.p, of.rule
    assert isinstance(rule, MambaAttention)
    _, batch, d = of.size
    edges, count, size = work.shape(p["d"])[0], of.pairs.keys, rule.state_size
    x, z = work.split(affine(work, p, "in.", of.values), (d, d), 3)
    r, b, c = work.split(affine(work, p, "x.", x), (rule.rank(d), size, size), 3)
    step = work.unary(affine(work, p, "dt.", r), "softplus")
    rates = work.constant(-np.arange(1.0, size + 1)[None, None, None, None], "rates")
    flat, whole = (edges * batch, count, d * size), (edges, batch, count, d, size)

    def each(values: int) -> int:
        return work.reshape(values, (edges, batch, count, d, 1))

    def every(values: int) -> int:
        return work.reshape(values, (edges, batch, count, 1, size))

    decay = work.unary(work.binary("mul", each(step), rates), "exp")
    driven = work.binary("mul", each(work.binary("mul", step, x)), every(b))
    s = linear_scan(work, work.reshape(driven, flat), work.reshape(decay, flat), work.zeros((flat[0], flat[2])))
    met = work.reduce(work.binary("mul", work.reshape(s, whole), every(c)), "sum", (4,))
    y = work.add(work.reshape(met, whole[:4]), work.binary("mul", x, by_edge(work, p["d"])))
    y = work.reshape(work.binary("mul", y, work.unary(z, "silu")), (edges * batch, count, d))
    return affine(work, p, "o.", work.reshape(_attend_to_values(of, y, edges), (edges, batch, of.pairs.queries, d)))


def _attend_to_values(of: AttentionInputs, values: int, edges: int) -> int:
    """Emit softmax attention of normalised queries over rows that are keys and values, ``[E · B, N, d]``."""
    work, p = of.work, of.p
    lead, batch, count, d = work.shape(of.queries)
    rows = work.norm(work.reshape(of.queries, (lead * batch * count, d)), kind="layer", eps=EPS)
    q = work.binary("mul", work.reshape(rows, (lead, batch, count, d)), by_edge(work, p["norm.weight"]))
    q = work.affine(work.add(q, by_edge(work, p["norm.bias"])), d**-0.5)
    logits = work.gemm(work.reshape(q, (edges * batch, count, d)), values, trans_b=True)
    return work.gemm(softmax(work, logits), values)


@lowering("rwkv")
def _rwkv(of: AttentionInputs) -> int:
    work, p = of.work, of.p
    _, batch, d = of.size
    keys, queries, edges = of.pairs.keys, of.pairs.queries, work.shape(p["decay"])[0]
    size = (edges, batch, keys, d)
    k = work.binary("min", affine(work, p, "k.", of.keys), work.scalar(BOUND))
    weight = work.unary(work.binary("max", k, work.scalar(-BOUND)), "exp")
    weighted_values = work.binary("mul", weight, affine(work, p, "v.", of.values))
    fade = work.unary(work.unary(work.unary(p["decay"], "exp"), "neg"), "exp")
    fades = work.reshape(work.broadcast(by_edge(work, fade), size), (edges * batch, keys, d))
    first = by_edge(work, work.unary(p["bonus"], "exp"))

    def met(u: int) -> int:
        before = _decayed_prefix(work, work.reshape(u, (edges * batch, keys, d)), fades)
        return work.add(work.reshape(before, size), work.binary("mul", u, first))

    wkv = work.binary("div", met(weighted_values), work.affine(met(weight), 1.0, LEAST))
    if queries <= keys:
        wkv = work.part(wkv, 2, 0, queries)
    else:
        last = work.broadcast(work.part(wkv, 2, keys - 1, keys), (edges, batch, queries - keys, d))
        wkv = work.concat((wkv, last), 2)
    gate = work.unary(affine(work, p, "r.", of.queries), "sigmoid")
    return affine(work, p, "o.", work.binary("mul", gate, wkv))


def _decayed_prefix(work: GraphBuilder, u: int, fades: int) -> int:
    """Emit the decayed sums before each step."""
    groups, count, d = work.shape(u)
    if count == 1:
        return work.zeros((groups, 1, d))
    s = linear_scan(work, u, fades, work.zeros((groups, d)))
    return work.pad(work.part(s, 1, 0, count - 1), (0, 1, 0), (0, 0, 0))
