"""In NumPy: fabric: many small recurrent cells on a graph, which exchange messages along its edges, as one layer."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.fabric.forward import back, run
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.fabric.layer.fabric_layer import Fabric


@oracle_of(Fabric)
class FabricOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:

        return run(self, p, xs[0], memory)

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:

        return back(saved, gy)
