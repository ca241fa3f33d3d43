"""In NumPy: softmax over a fixed part of an axis."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Saved, oracle_of
from tests.oracles.softmax import SoftmaxOracle
from volumetric.base._typing import Array
from volumetric.layers.masked_softmax import MaskedSoftmax


@oracle_of(MaskedSoftmax)
class MaskedSoftmaxOracle(SoftmaxOracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        return SoftmaxOracle.probabilities(self, np.where(self.mask, z, -np.inf).astype(z.dtype, copy=False))

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        return np.where(self.mask, SoftmaxOracle.logits_vjp(self, saved, gy), gy.dtype.type(0))
