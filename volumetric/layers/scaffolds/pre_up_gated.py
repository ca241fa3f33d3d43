"""PreUpGated: PreUp with a gate in the place of its residual sum."""

from __future__ import annotations

from typing import ClassVar

from volumetric.layers.base import layer
from volumetric.layers.scaffolds.pre_up import PreUp


@layer("pre_up_gated")
class PreUpGated(PreUp):
    """`PreUp` with ``y = gate(x, f)`` in the place of ``y = x + f``.

    ``gate(x, f) = (1 - z) ⊙ x + z ⊙ ĥ`` with ``r = σ(Wr f + Ur x)``, ``z = σ(Wz f + Uz x - b)`` and
    ``ĥ = tanh(Wg f + Ug (r ⊙ x))``; b begins with 2, so that a fresh gate passes most of x on (Parisotto et al. 2019).
    """

    gated: ClassVar[bool] = True
