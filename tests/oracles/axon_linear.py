"""In NumPy: axonLinear: an affine map with an Axon beside it, so that what it computes depends on rows before."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Oracle, Saved, below, oracle, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covered_by
from volumetric.base._typing import Array
from volumetric.layers.axon_linear import AxonLinear


@oracle_of(AxonLinear)
class AxonLinearOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        covered = covered_by(memory, xs[0].shape)
        y, saved = oracle(self.axon).forward(
            below(p, "axon"), *xs, memory=None if covered is None else covered.child("axon")
        )
        return affine(p, "", xs[0]) + y, {"x": xs[0], "axon": saved}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        gx = affine_vjp(p, "", saved["x"], gy, params)
        beside = oracle(self.axon).vjp(below(p, "axon"), saved["axon"], gy)
        params |= {f"axon/{name}": g for name, g in beside.params.items()}
        through = beside.inputs[0]
        return Grads((gx if through is None else gx + through,), params)
