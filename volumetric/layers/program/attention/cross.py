"""`cross`: softmax attention."""

from __future__ import annotations

from volumetric.layers.program.attention.base import attention
from volumetric.layers.program.attention.heads import ByHeads


@attention("cross")
class Cross(ByHeads):
    """``a = W_o softmax(q kᵀ / √e) v + b_o``, by heads of e = d / heads features (Vaswani et al. 2017)."""
