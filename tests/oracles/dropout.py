"""In NumPy: dropout (Srivastava et al. 2014, JMLR 15), with torch's field."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.memory import Memory
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.graph.numeric.counter_noise import stream_of
from volumetric.graph.operations.noise import apply_dropout, dropout_mask
from volumetric.layers.dropout import Dropout


@oracle_of(Dropout)
class DropoutOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        return xs[0], {}

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        x = xs[0]
        row = x.size // len(x) if len(x) else 0
        keep = dropout_mask(x.shape, self.p, training.noise, stream_of(training.path), training.first * row)
        return apply_dropout(x, keep, self.p), {"keep": keep}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((apply_dropout(gy, saved["keep"], self.p) if "keep" in saved else gy,))
