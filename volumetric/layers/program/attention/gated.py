"""`gated`: softmax attention behind one learned gate."""

from __future__ import annotations

from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention.base import attention
from volumetric.layers.program.attention.heads import ByHeads

CLOSED = -4.0
"""What gates begin with: σ(-4) is 0.018, so that a new edge disturbs little."""


def gate(name: str = "gate") -> ParamSpec:
    """Parameter of a gate: one number, behind a sigmoid."""
    return ParamSpec(name=name, shape=(1,), init="uniform", bounds=(CLOSED, CLOSED), packable=False)


@attention("gated")
class Gated(ByHeads):
    """``a = σ(g) · cross``, g one number, -4 at first."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return *self.maps(d), gate()
