"""`sparse`: softmax over the few best keys."""

from __future__ import annotations

from volumetric.layers.program.attention.base import attention, positive
from volumetric.layers.program.attention.heads import ByHeads


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
