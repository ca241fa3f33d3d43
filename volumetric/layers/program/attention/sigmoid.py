"""`sigmoid`: attention whose weights do not compete."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.layers.base import Arrays
from volumetric.layers.program.attention.base import Pairs, attention
from volumetric.layers.program.attention.heads import ByHeads, hidden, only, read, scores


@attention("sigmoid")
class Sigmoid(ByHeads):
    """``a = W_o σ(q kᵀ / √e) v + b_o`` by heads: a sum, which grows with the number of keys."""

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        seen = self.seen(pairs)
        return only(read(p, sigmoid(hidden(scores(p, self.heads, queries, keys), seen)), values), seen)
