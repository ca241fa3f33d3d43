"""In NumPy: passThrough: a core alone."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Saved, oracle_of
from tests.oracles.scaffolds.base import RunCore, ScaffoldOracle
from volumetric.base._typing import Array
from volumetric.layers.scaffolds.pass_through import PassThrough


@oracle_of(PassThrough)
class PassThroughOracle(ScaffoldOracle):
    def around(self, p: Arrays, x: Array, core: RunCore) -> tuple[Array, Saved]:
        y, saved = core(x)
        return y, {"core": saved}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        return Grads((self.core_vjp(p, saved["core"], gy, params),), params)
