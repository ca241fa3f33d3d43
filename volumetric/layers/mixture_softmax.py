"""A weighted mean of several softmaxes."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.errors import ShapeError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.base import Saved, expect_positive, layer
from volumetric.layers.softmax import AxisSoftmax


@layer("mixture_softmax")
class MixtureSoftmax(AxisSoftmax):
    """``y = Σₖ softmax(w)ₖ softmax(zₖ)``: distributions that no single softmax of few features can express.

    Yang et al. 2018 (arXiv 1711.03953). The logits are the `components` logits w of the weights, then those of every
    component: ``components · (1 + n)`` logits give n probabilities.
    """

    components: int

    def __post_init__(self) -> None:
        """Check the fields."""
        AxisSoftmax.__post_init__(self)
        expect_positive(self, "components")

    def outcomes(self, size: int) -> int:
        if size % self.components or size < 2 * self.components:
            raise ShapeError(
                f"mixture_softmax: needs {self.components} logits for the weights and as many equal parts, got {size}"
            )
        return size // self.components - 1

    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        weights = softmax(z[..., : self.components])
        parts = softmax(z[..., self.components :].reshape(*weights.shape, self.outcomes(z.shape[-1])))
        return (weights[..., None] * parts).sum(axis=-2), {"weights": weights, "parts": parts}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        weights, parts = saved["weights"], saved["parts"]
        g = gy[..., None, :]
        g_weights = softmax_vjp(weights, (g * parts).sum(axis=-1))
        g_parts = softmax_vjp(parts, weights[..., None] * g)
        return np.concatenate([g_weights, g_parts.reshape(*gy.shape[:-1], weights.shape[-1] * gy.shape[-1])], axis=-1)

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        rows, size = work.shape(z)
        count, outcomes = self.components, self.outcomes(size)
        logits, rest = work.split(z, [count, count * outcomes], 1)
        weights = work.reshape(work.softmax(logits), (rows, count, 1))
        parts = work.reshape(work.softmax(work.reshape(rest, (rows * count, outcomes))), (rows, count, outcomes))
        return work.reshape(work.reduce(work.binary("mul", weights, parts), "sum", (1,)), (rows, outcomes))
