"""PassThrough: a core alone."""

from __future__ import annotations

from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_spec import layer
from volumetric.layers.scaffolds.scaffold import CORE, Scaffold, emit_inside


@layer("pass_through")
class PassThrough(Scaffold):
    """A core without change, as a scaffold: the expert of a `Column`, the layer of a stack (docs/stacks.md).

    ::

        y = core(x)

    Parameters and states are those of the core, under ``core/``.

    Attributes
    ----------
    core : the layer inside
    """

    def emit(self, scope: Scope, x: int) -> int:
        return emit_inside(scope, CORE, self.core, x)
