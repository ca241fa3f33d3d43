"""Sparse relatives of softmax: sparsemax and the entmax family between the two."""

from __future__ import annotations

from volumetric.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.base import layer
from volumetric.layers.softmax import AxisSoftmax


@layer("sparsemax")
class Sparsemax(AxisSoftmax):
    """``y = sparsemax(x / temperature)``: the nearest point of the simplex, with exact zeros."""

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        return work.entmax(z, 2.0)


@layer("entmax")
class Entmax(AxisSoftmax):
    """``y = entmax_α(x / temperature)``; α = 2 is sparsemax, towards 1 it becomes softmax."""

    alpha: float = 1.5

    def __post_init__(self) -> None:
        """Check the fields."""
        AxisSoftmax.__post_init__(self)
        if not 1 < self.alpha <= 2:
            raise SpecError(f"entmax: alpha must be above 1 and at most 2, got {self.alpha}", hint="1 is softmax")

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        return work.entmax(z, self.alpha)
