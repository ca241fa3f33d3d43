"""Attention rules as nodes: edges of one rule, and of the same sizes and masks, side by side."""

from __future__ import annotations

from volumetric.layers.nodes.program_attention.base import BY_HEADS, Reading, attend, lowering, stacked
from volumetric.layers.nodes.program_attention.heads import mapped
from volumetric.layers.nodes.program_attention.small import attend_directly, is_direct, reads_turned, turned

__all__ = [
    "BY_HEADS",
    "Reading",
    "attend",
    "attend_directly",
    "is_direct",
    "lowering",
    "mapped",
    "reads_turned",
    "stacked",
    "turned",
]
