"""Attention rules of edges, and their graph nodes."""

from __future__ import annotations

from volumetric.program.layer.attention.base import (
    BY_HEADS,
    RULES,
    Attention,
    Pairs,
    Reading,
    attend,
    attention,
    lowering,
    rule_of,
    stacked,
)
from volumetric.program.layer.attention.heads import attend_directly, is_direct, mapped, reads_turned, turned

__all__ = [
    "BY_HEADS",
    "RULES",
    "Attention",
    "Pairs",
    "Reading",
    "attend",
    "attend_directly",
    "attention",
    "is_direct",
    "lowering",
    "mapped",
    "reads_turned",
    "rule_of",
    "stacked",
    "turned",
]
