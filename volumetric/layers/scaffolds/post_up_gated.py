"""PostUpGated: PostUp with gates in the place of its residual sums."""

from __future__ import annotations

from typing import ClassVar

from volumetric.layers.base import layer
from volumetric.layers.scaffolds.post_up import PostUp


@layer("post_up_gated")
class PostUpGated(PostUp):
    """`PostUp` with ``gate(x, f)`` in the place of both sums ``x + f``; each has a gate of its own.

    ``gate(x, f) = (1 - z) ⊙ x + z ⊙ ĥ`` with ``r = σ(Wr f + Ur x)``, ``z = σ(Wz f + Uz x - b)`` and
    ``ĥ = tanh(Wg f + Ug (r ⊙ x))``; b begins with 2, so that a fresh gate passes most of x on (Parisotto et al. 2019).
    """

    gated: ClassVar[bool] = True
