"""PreUpGated: PreUp with a gate instead of its residual sum."""

from __future__ import annotations

from typing import ClassVar

from volumetric.layers.layer_spec import layer
from volumetric.layers.scaffolds.pre_up import PreUp


@layer("pre_up_gated")
class PreUpGated(PreUp):
    """A `PreUp` with a gate instead of its sum.

    ::

        [a, z] = W₁ norm(x) + b₁
        f = W₂ ((core(silu(a)) + k ⊙ silu(a)) ⊙ silu(z)) + b₂
        y = gate(x, f)
        gate(x, f) = (1 − u) ⊙ x + u ⊙ ĥ
        r = σ(Wr f + Ur x)       u = σ(Wz f + Uz x − b)       ĥ = tanh(Wg f + Ug (r ⊙ x))

    b is 2 at first, so a new gate passes most of x on.

    Parisotto et al. 2019, GTrXL (arXiv 1910.06764).
    """

    gated: ClassVar[bool] = True
