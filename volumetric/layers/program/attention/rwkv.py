"""`rwkv`: a mean of the source that fades, read in order."""

from __future__ import annotations

from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention.base import Attention, attention
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
