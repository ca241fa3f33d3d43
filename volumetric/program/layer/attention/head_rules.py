"""Multi-head attention rules, and their nodes."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.base.rng import generator
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention.head_ops import (
    ByHeads,
    affine,
    by_edge,
    cross_attention,
    direction,
    join_heads,
    mask_constant,
    mask_logits,
    project_heads,
    read_heads,
    scores,
    softmax,
)
from volumetric.program.layer.attention.rule_base import AttentionInputs, Pairs, check_positive, lowering, register_rule


@register_rule("cross")
class CrossAttention(ByHeads):
    """``a = W_o softmax(q kᵀ / √e) v + b_o``, by heads of e = d / heads features (Vaswani et al. 2017)."""


CLOSED = -4.0
"""Initial value of gates: σ(-4) is 0.018, so that a new edge has little effect."""


def gate(name: str = "gate") -> ParamSpec:
    """Return the parameter of a gate: one number, the input of a sigmoid."""
    return ParamSpec(name=name, shape=(1,), init="uniform", bounds=(CLOSED, CLOSED), packable=False)


@register_rule("gated")
class GatedAttention(ByHeads):
    """``a = σ(g) · cross``, g one number, -4 at first."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return *self.maps(d), gate()


@register_rule("sparse")
class SparseAttention(ByHeads):
    """``cross_attention`` over the `top_k` largest logits of each query and head; ties go to the earlier key.

    Attributes
    ----------
    top_k : number of keys, all if there are fewer
    """

    top_k: int = 8

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "heads", "top_k")


@register_rule("sigmoid")
class SigmoidAttention(ByHeads):
    """``a = W_o σ(q kᵀ / √e) v + b_o`` by heads: a sum, which grows with the number of keys."""


@register_rule("cosine")
class CosineAttention(ByHeads):
    """``a = W_o softmax(τ q̂ k̂ᵀ) v + b_o`` by heads, ``q̂ = q / max(|q|, 1e-12)``; τ is learned, 10 at first."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        sharpness = ParamSpec(name="temperature", shape=(1,), init="uniform", bounds=(10.0, 10.0), packable=False)
        return *self.maps(d), sharpness


LEAST = 1e-6
"""Added to the denominator."""


@register_rule("linear")
class LinearAttention(ByHeads):
    """``a = W_o φ(q) (φ(k)ᵀ v) / (φ(q) · Σ φ(k) + 1e-6) + b_o`` by heads, φ(x) = elu(x) + 1.

    Katharopoulos et al. 2020, arXiv 2006.16236.
    """


Metric = Literal["order", "grid"]


@register_rule("local")
class LocalAttention(ByHeads):
    """``cross_attention`` over nearby keys; a query without any is not written.

    Attributes
    ----------
    window : key j is near query i if ``|i - ⌊j N / M⌋| ≤ ⌊window / 2⌋`` in the order of positions, or if their distance
        on the canvas is at most ``window / 2``
    metric : ``"order"`` for the first, ``"grid"`` for the second
    """

    window: int = 8
    metric: Metric = "order"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "heads", "window")
        if self.metric not in get_args(Metric):
            raise SpecError(f"local: unknown metric {self.metric!r}", hint="use one of " + ", ".join(get_args(Metric)))

    def visible(self, pairs: Pairs) -> Array | None:
        if self.metric == "order":
            key = np.arange(pairs.keys) * pairs.queries // pairs.keys
            near = np.abs(np.arange(pairs.queries)[:, None] - key) <= self.window // 2
        elif pairs.places is None:
            raise SpecError("local with metric='grid' needs places on a canvas", hint="metric='order' needs none")
        else:
            query_places, key_places = (place.astype(np.int64) for place in pairs.places)
            near = 4 * np.square(query_places[:, None] - key_places).sum(2) <= self.window**2
        return near if pairs.mask is None else near & pairs.mask


@register_rule("random_fixed")
class RandomFixedAttention(ByHeads):
    """``cross_attention`` over a few keys of each query, drawn without replacement from those allowed by the mask.

    Attributes
    ----------
    count : number of keys of a query, all if there are fewer
    seed : query i draws from random stream i of this seed, so that the keys are the same at each run
    """

    count: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "heads", "count")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise SpecError(f"random_fixed: seed must be a whole number from 0 on, got {self.seed!r}")

    def visible(self, pairs: Pairs) -> Array | None:
        if self.count >= pairs.keys:
            return pairs.mask
        return _draw_keys(self.count, self.seed, pairs)


@lru_cache(maxsize=256)
def _draw_keys(count: int, seed: int, pairs: Pairs) -> Array:
    """Return the keys of each query, drawn once for the pairs of an edge."""
    mask = np.zeros((pairs.queries, pairs.keys), np.bool_)
    for i in range(pairs.queries):
        may = np.arange(pairs.keys) if pairs.mask is None else np.flatnonzero(pairs.mask[i])
        mask[i, generator(seed, i).permutation(may)[:count]] = True
    mask.setflags(write=False)
    return mask


def _rule(of: AttentionInputs) -> ByHeads:
    assert isinstance(of.rule, ByHeads)  # by its name
    return of.rule


@lowering("cross", "local", "random_fixed")
def _cross(of: AttentionInputs) -> int:
    rule = _rule(of)
    return cross_attention(of.work, of.p, rule.heads, of.queries, of.keys, of.values, rule.visible(of.pairs))


@lowering("gated")
def _gated_attention(of: AttentionInputs) -> int:
    work = of.work
    return work.binary("mul", _cross(of), by_edge(work, work.unary(of.p["gate"], "sigmoid")))


@lowering("sparse")
def _sparse(of: AttentionInputs) -> int:
    work, rule = of.work, _rule(of)
    assert isinstance(rule, SparseAttention)
    logits = mask_logits(work, scores(work, of.p, rule.heads, of.queries, of.keys), rule.visible(of.pairs))
    size = groups, count, wide = work.shape(logits)
    if rule.top_k < wide:
        best = work.keep_largest(work.reshape(logits, (groups * count, wide)), rule.top_k)
        logits = work.reshape(best, size)
    return read_heads(work, of.p, rule.heads, softmax(work, logits), of.values)


@lowering("sigmoid")
def _sigmoid(of: AttentionInputs) -> int:
    work, rule = of.work, _rule(of)
    weights = work.unary(scores(work, of.p, rule.heads, of.queries, of.keys), "sigmoid")
    visible = rule.visible(of.pairs)
    if visible is not None:
        weights = work.binary("mul_nonzero", weights, mask_constant(work, visible))
    return read_heads(work, of.p, rule.heads, weights, of.values)


@lowering("cosine")
def _cosine(of: AttentionInputs) -> int:
    work, rule = of.work, _rule(of)
    q, k = (
        direction(work, project_heads(work, of.p, n, x, rule.heads)) for n, x in (("q.", of.queries), ("k.", of.keys))
    )
    logits = work.gemm(q, k, trans_b=True)
    groups, count, wide = work.shape(logits)
    edges = work.shape(of.p["temperature"])[0]
    by = work.reshape(logits, (edges, groups // edges, count, wide))
    logits = work.reshape(work.binary("mul", by, by_edge(work, of.p["temperature"])), (groups, count, wide))
    return read_heads(
        work, of.p, rule.heads, softmax(work, mask_logits(work, logits, rule.visible(of.pairs))), of.values
    )


@lowering("linear")
def _linear(of: AttentionInputs) -> int:
    work, rule = of.work, _rule(of)
    q, k = (
        _feature(work, project_heads(work, of.p, n, x, rule.heads)) for n, x in (("q.", of.queries), ("k.", of.keys))
    )
    v, visible = project_heads(work, of.p, "v.", of.values, rule.heads), rule.visible(of.pairs)
    if visible is None:
        met = work.gemm(q, work.gemm(k, v, trans_a=True))
        total = work.gemm(q, work.reduce(k, "sum", (1,)), trans_b=True)
    else:
        weights = work.binary("mul_nonzero", work.gemm(q, k, trans_b=True), mask_constant(work, visible))
        met, total = work.gemm(weights, v), work.reduce(weights, "sum", (2,))
    means = work.binary("div", met, work.affine(total, 1.0, LEAST))
    edges = work.shape(of.p["o.weight"])[0]
    return affine(work, of.p, "o.", join_heads(work, means, edges, rule.heads))


def _feature(work: GraphBuilder, x: int) -> int:
    """``elu(x) + 1``."""
    zero = work.scalar(0.0)
    return work.add(work.binary("max", x, zero), work.unary(work.binary("min", x, zero), "exp"))
