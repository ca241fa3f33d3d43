"""`cosine`: attention by the angle between queries and keys."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.graph.numeric.softmax import softmax
from volumetric.layers.base import Arrays, ParamSpec
from volumetric.layers.dense import affine
from volumetric.layers.program.attention.base import Pairs, attention
from volumetric.layers.program.attention.heads import ByHeads, apart, direction, hidden, only, read


@attention("cosine")
class Cosine(ByHeads):
    """``a = W_o softmax(τ q̂ k̂ᵀ) v + b_o`` by heads, ``q̂ = q / max(|q|, 1e-12)``; τ is learned, 10 at first."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        sharpness = ParamSpec(name="temperature", shape=(1,), init="uniform", bounds=(10.0, 10.0), packable=False)
        return *self.maps(d), sharpness

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        q, k = (direction(apart(affine(p, n, x), self.heads)) for n, x in (("q.", queries), ("k.", keys)))
        seen = self.seen(pairs)
        logits = hidden(q @ k.swapaxes(2, 3) * p["temperature"], seen)
        return only(read(p, softmax(logits), values), seen)
