"""In NumPy: softmax, the base of everything that turns logits along an axis into probabilities, and the soft."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.softmax import AxisSoftmax, Softmax


@oracle_of(AxisSoftmax)
class AxisSoftmaxOracle(Oracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        """Map logits ``[..., size]`` to probabilities ``[..., outcomes(size)]``."""
        raise NotImplementedError(self.kind)

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        """Return the gradient of what `probabilities` took."""
        raise NotImplementedError(self.kind)

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        y, saved = self.probabilities(np.moveaxis(x, self.axis, -1) / x.dtype.type(self.temperature))
        return np.moveaxis(y, -1, self.axis), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        g = self.logits_vjp(saved, np.moveaxis(gy, self.axis, -1)) / gy.dtype.type(self.temperature)
        return Grads((np.moveaxis(g, -1, self.axis),))


@oracle_of(Softmax)
class SoftmaxOracle(AxisSoftmaxOracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        y = softmax(z)
        return y, {"y": y}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        return softmax_vjp(saved["y"], gy)
