"""Attention rules of edges, and their graph nodes."""

from __future__ import annotations

from volumetric.program.layer.attention.head_ops import (
    attend_directly,
    is_direct,
    map_constants,
    reads_transposed,
    transpose_params,
)
from volumetric.program.layer.attention.rule_base import (
    BY_HEADS,
    RULES,
    Attention,
    AttentionInputs,
    Pairs,
    attend,
    lowering,
    register_rule,
    rule_of,
    stack_tensors,
)

__all__ = [
    "BY_HEADS",
    "RULES",
    "Attention",
    "AttentionInputs",
    "Pairs",
    "attend",
    "attend_directly",
    "is_direct",
    "lowering",
    "map_constants",
    "reads_transposed",
    "register_rule",
    "rule_of",
    "stack_tensors",
    "transpose_params",
]
