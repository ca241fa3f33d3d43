"""Attention rules as nodes: edges of one rule, and of the same sizes and masks, side by side."""

from __future__ import annotations

from volumetric.runtime.graph.rules.program_attention.base import BY_HEADS, Reading, attend, lowering, stacked
from volumetric.runtime.graph.rules.program_attention.heads import mapped
from volumetric.runtime.graph.rules.program_attention.small import attend_directly, is_direct, reads_turned, turned

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
