"""`cross`: softmax attention."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.layers.base import Arrays
from volumetric.layers.program.attention.base import Pairs, attention
from volumetric.layers.program.attention.heads import ByHeads, cross


@attention("cross")
class Cross(ByHeads):
    """``a = W_o softmax(q kᵀ / √e) v + b_o``, by heads of e = d / heads features (Vaswani et al. 2017)."""

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        return cross(p, self.heads, queries, keys, values, self.seen(pairs))
