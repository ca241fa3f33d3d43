"""Attention rules: how the positions that an edge writes read those of its source."""

from __future__ import annotations

from volumetric.layers.program.attention.base import RULES, Attention, Pairs, attention, rule_of

__all__ = ["RULES", "Attention", "Pairs", "attention", "rule_of"]
