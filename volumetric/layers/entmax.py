"""Sparse variants of softmax: sparsemax, and the entmax family between softmax and sparsemax."""

from __future__ import annotations

from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import layer
from volumetric.layers.softmax import AxisSoftmax


@layer("sparsemax")
class Sparsemax(AxisSoftmax):
    """The nearest point of the simplex to the logits, with exact zeros.

    ::

        y = argmin_p ‖p − x/τ‖²  over the simplex  =  max(x/τ − t, 0)

    t is the number for which y sums to 1. The Jacobian acts only on the support S: ``x̄_i = (gy_i − mean_S gy) / τ``
    for i in S, else 0.

    Martins & Astudillo 2016 (arXiv 1602.02068).
    """

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        return work.entmax(z, 2.0)


@layer("entmax")
class Entmax(AxisSoftmax):
    """A softmax that can be sparse: α = 2 is sparsemax; the limit for α → 1 is softmax.

    ::

        y_i = max((α − 1) x_i/τ − t, 0)^(1/(α − 1))

    t is the number for which y sums to 1. With ``s = y^(2 − α)``: ``x̄ = s (gy − Σ s gy / Σ s) / τ``.

    Peters et al. 2019 (arXiv 1905.05702).

    Attributes
    ----------
    alpha : 1: softmax, 2: sparsemax
    """

    alpha: float = 1.5

    def __post_init__(self) -> None:
        """Check the fields."""
        AxisSoftmax.__post_init__(self)
        if not 1 < self.alpha <= 2:
            raise SpecError(f"entmax: alpha must be above 1 and at most 2, got {self.alpha}", hint="1 is softmax")

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        return work.entmax(z, self.alpha)
