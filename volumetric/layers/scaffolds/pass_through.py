"""PassThrough: a core alone."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.layers.base import Arrays, Grads, Saved, layer
from volumetric.layers.scaffolds.base import CORE, RunCore, Scaffold, inside
from volumetric.layers.scope import Scope


@layer("pass_through")
class PassThrough(Scaffold):
    """``y = core(x)``: a core as it is, where a scaffold is asked for.

    Attributes
    ----------
    core : the layer inside
    """

    def around(self, p: Arrays, x: Array, core: RunCore) -> tuple[Array, Saved]:
        y, saved = core(x)
        return y, {"core": saved}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        return Grads((self.core_vjp(p, saved["core"], gy, params),), params)

    def emit(self, scope: Scope, x: int) -> int:
        return inside(scope, CORE, self.core, x)
