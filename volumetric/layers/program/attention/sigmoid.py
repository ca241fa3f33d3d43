"""`sigmoid`: attention whose weights do not compete."""

from __future__ import annotations

from volumetric.layers.program.attention.base import attention
from volumetric.layers.program.attention.heads import ByHeads


@attention("sigmoid")
class Sigmoid(ByHeads):
    """``a = W_o σ(q kᵀ / √e) v + b_o`` by heads: a sum, which grows with the number of keys."""
