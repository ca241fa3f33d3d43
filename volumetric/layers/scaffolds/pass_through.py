"""PassThrough: a core alone."""

from __future__ import annotations

from volumetric.layers.base import layer
from volumetric.layers.scaffolds.base import CORE, Scaffold, inside
from volumetric.layers.scope import Scope


@layer("pass_through")
class PassThrough(Scaffold):
    """``y = core(x)``: a core as it is, where a scaffold is asked for.

    Attributes
    ----------
    core : the layer inside
    """

    def emit(self, scope: Scope, x: int) -> int:
        return inside(scope, CORE, self.core, x)
