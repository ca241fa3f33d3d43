"""Scale: a constant factor, as on the logits of Cohere and on the residual sums of Granite."""

from __future__ import annotations

import math

from volumetric.base.errors import SpecError
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import LayerSpec, layer


@layer("scale")
class Scale(LayerSpec):
    """Multiplies every element by one constant, which is part of the structure and not trained.

    ::

        y = factor · x

    Cohere's models scale their logits with it. Granite's models scale the output of each block.

    Attributes
    ----------
    factor : the constant
    """

    factor: float = positional()

    def __post_init__(self) -> None:
        """Check the fields."""
        if not math.isfinite(self.factor):
            raise SpecError(f"scale: factor must be finite, got {self.factor}")

    def emit(self, scope: Scope, x: int) -> int:
        return scope.work.affine(x, self.factor)
