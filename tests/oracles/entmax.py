"""In NumPy: sparse relatives of softmax: sparsemax and the entmax family between the two."""

from __future__ import annotations

from tests.oracles.base import Saved, oracle_of
from tests.oracles.softmax import AxisSoftmaxOracle
from volumetric.base._typing import Array
from volumetric.graph.operations.rows import entmax, entmax_vjp, sparsemax
from volumetric.layers.entmax import Entmax, Sparsemax


@oracle_of(Sparsemax)
class SparsemaxOracle(AxisSoftmaxOracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        y = sparsemax(z)
        return y, {"y": y}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        return entmax_vjp(saved["y"], gy, 2.0)


@oracle_of(Entmax)
class EntmaxOracle(AxisSoftmaxOracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        y = sparsemax(z) if self.alpha == 2 else entmax(z, self.alpha)
        return y, {"y": y}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        return entmax_vjp(saved["y"], gy, self.alpha)
