"""`sparse`: softmax over the few best keys."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.graph.numeric.largest import keep_largest
from volumetric.layers.base import Arrays
from volumetric.layers.program.attention.base import Pairs, attention, positive
from volumetric.layers.program.attention.heads import ByHeads, cross


@attention("sparse")
class Sparse(ByHeads):
    """``cross`` over the `top_k` largest logits of each query and head, of equal ones the earlier.

    Attributes
    ----------
    top_k : keys that count, all if there are fewer
    """

    top_k: int = 8

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "heads", "top_k")

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        best = min(self.top_k, pairs.keys)
        seen = self.seen(pairs)
        return cross(p, self.heads, queries, keys, values, seen, keep=lambda logits: keep_largest(logits, best))
