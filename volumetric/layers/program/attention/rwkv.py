"""`rwkv`: a mean of the source that fades, read in order."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.graph.numeric.selective_scan import linear_scan
from volumetric.layers.base import Arrays, ParamSpec
from volumetric.layers.dense import affine
from volumetric.layers.program.attention.base import Attention, Pairs, attention
from volumetric.layers.program.attention.heads import square_maps

BOUND, LEAST = 10.0, 1e-6
"""Largest key, either way; what is added to the sum that is divided by."""


@attention("rwkv")
class RWKV(Attention):
    """``a = W_o (σ(r) · wkv) + b_o``, query i with the mean up to key i (Peng et al. 2023, arXiv 2305.13048).

    With ``κ = exp(clip(k, ±10))`` and ``w = exp(-exp(decay))`` for each feature,
    ``wkv_t = (num + e^u κ_t v_t) / (den + e^u κ_t + 1e-6)``; then ``num ← w num + κ_t v_t`` and ``den ← w den + κ_t``.
    Queries beyond the last key take that one's. It has no heads.
    """

    whole = True

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return (
            *square_maps(d, "r.", "k.", "v.", "o."),
            ParamSpec(name="decay", shape=(d,), init="uniform", bounds=(-5.0, -5.0), packable=False),
            ParamSpec(name="bonus", shape=(d,), init="zeros", packable=False),
        )

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        weight = np.exp(np.clip(affine(p, "k.", keys), -BOUND, BOUND))
        v, first = affine(p, "v.", values), np.exp(p["bonus"])
        fade = np.exp(-np.exp(p["decay"]))
        num, den = (_before(linear_scan(u, fade, np.zeros_like(u[:, 0]))) for u in (weight * v, weight))
        wkv = (num + first * weight * v) / (den + first * weight + LEAST)
        read = wkv[:, np.minimum(np.arange(pairs.queries), pairs.keys - 1)]
        return affine(p, "o.", sigmoid(affine(p, "r.", queries)) * read)


def _before(s: Array) -> Array:
    """What there was before each step."""
    return np.concatenate([np.zeros_like(s[:, :1]), s[:, :-1]], axis=1)
