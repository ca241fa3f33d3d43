"""In NumPy: a weighted mean of several softmaxes."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Saved, oracle_of
from tests.oracles.softmax import AxisSoftmaxOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.mixture_softmax import MixtureSoftmax


@oracle_of(MixtureSoftmax)
class MixtureSoftmaxOracle(AxisSoftmaxOracle):
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
