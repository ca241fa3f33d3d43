"""Attention rules as nodes: edges of one rule, and of the same sizes and masks, side by side."""

from __future__ import annotations

from volumetric.runtime.graph.rules.program_attention.base import Reading, attend, lowering, stacked

__all__ = ["Reading", "attend", "lowering", "stacked"]
