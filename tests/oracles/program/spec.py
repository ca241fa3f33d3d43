"""In NumPy: program: typed regions of a canvas, and edges between them, as one layer."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.memory import Memory
from tests.oracles.program.forward import run
from tests.oracles.program.gradients import gradients
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.program.layer.program_layer import Program


@oracle_of(Program)
class ProgramOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:

        return run(self, p, xs[0], memory)

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:

        return run(self, p, xs[0], None, training)

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        # Gradients are those of the graph, on its interpreter; central differences of `forward` check them.

        return gradients(self.spec, p, saved, gy)
