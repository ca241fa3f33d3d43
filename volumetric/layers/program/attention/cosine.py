"""`cosine`: attention by the angle between queries and keys."""

from __future__ import annotations

from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention.base import attention
from volumetric.layers.program.attention.heads import ByHeads


@attention("cosine")
class Cosine(ByHeads):
    """``a = W_o softmax(τ q̂ k̂ᵀ) v + b_o`` by heads, ``q̂ = q / max(|q|, 1e-12)``; τ is learned, 10 at first."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        sharpness = ParamSpec(name="temperature", shape=(1,), init="uniform", bounds=(10.0, 10.0), packable=False)
        return *self.maps(d), sharpness
