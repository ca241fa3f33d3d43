"""`mamba`: a selective state-space model over the source, whose results are read by likeness."""

from __future__ import annotations

from volumetric.layers.base import ParamSpec
from volumetric.layers.dense import affine_params
from volumetric.layers.program.attention.base import Attention, attention, positive

EPS = 1e-5
"""Of the norm of queries."""


@attention("mamba")
class Mamba(Attention):
    """``a = W_o softmax(LN(q) pᵀ / √d) p + b_o``, where p are results of a scan over the source (Gu & Dao 2023).

    ``(x, z) = W_in v + b``, ``(r, B, C) = W_x x + b``, ``δ = softplus(W_dt r + b)``, and for each feature and each of
    `state_size` rates a = 1, 2, …: ``s ← e^{-δ a} s + δ B x``. Then ``p = (Σ s C + D x) · silu(z)``. It has no heads.

    Attributes
    ----------
    state_size : rates
    """

    whole = True

    state_size: int = 16

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "state_size")

    @staticmethod
    def rank(d: int) -> int:
        """Width of r."""
        return max(1, d // 16)

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return (
            *affine_params("in.", 2 * d, d, bias=True),
            *affine_params("x.", self.rank(d) + 2 * self.state_size, d, bias=True),
            *affine_params("dt.", d, self.rank(d), bias=True),
            ParamSpec(name="d", shape=(d,), init="ones", packable=False),
            ParamSpec(name="norm.weight", shape=(d,), init="ones", packable=False),
            ParamSpec(name="norm.bias", shape=(d,), init="zeros", packable=False),
            *affine_params("o.", d, d, bias=True),
        )
