"""In NumPy: independent choices side by side: softmax in each row of a small grid."""

from __future__ import annotations

from tests.oracles.base import Saved, oracle_of
from tests.oracles.softmax import AxisSoftmaxOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.grid_softmax import GridSoftmax


@oracle_of(GridSoftmax)
class GridSoftmaxOracle(AxisSoftmaxOracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        y = softmax(self._grid(z))
        return y.reshape(z.shape), {"y": y}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        return softmax_vjp(saved["y"], self._grid(gy)).reshape(gy.shape)

    def _grid(self, z: Array) -> Array:
        return z.reshape(*z.shape[:-1], self.rows, self.cols)
