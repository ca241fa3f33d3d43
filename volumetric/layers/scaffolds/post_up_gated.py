"""PostUpGated: PostUp with gates instead of residual sums."""

from __future__ import annotations

from typing import ClassVar

from volumetric.layers.layer_spec import layer
from volumetric.layers.scaffolds.post_up import PostUp


@layer("post_up_gated")
class PostUpGated(PostUp):
    """A `PostUp` with a gate instead of each sum.

    ::

        h = gate₁(x, core(norm₁(x)))
        y = gate₂(h, W₂ silu(W₁ norm₂(h) + b₁) + b₂)
        gate(x, f) = (1 − z) ⊙ x + z ⊙ ĥ
        r = σ(Wr f + Ur x)       z = σ(Wz f + Uz x − b)       ĥ = tanh(Wg f + Ug (r ⊙ x))

    b is 2 at first, so a new gate passes most of x on.

    Parisotto et al. 2019, GTrXL (arXiv 1910.06764).
    """

    gated: ClassVar[bool] = True
