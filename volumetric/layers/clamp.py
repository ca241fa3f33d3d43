"""Clamp: limits elements to two bounds, as torch.clamp; ReLU and ReLU6 are special cases."""

from __future__ import annotations

import math

from volumetric.base.errors import SpecError
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import LayerSpec, layer


@layer("clamp")
class Clamp(LayerSpec):
    """Keeps every element between two bounds, as ``torch.clamp``.

    ::

        y = min(max(x, min), max)

    NaN stays NaN. ``Clamp(min=0.0)`` is ReLU for places without a layer that can have it as its activation, such as
    behind a residual sum. ``Clamp(min=0.0, max=6.0)`` is ReLU6 (MobileNet, arXiv 1801.04381). The gradient passes for
    elements between the bounds or on one.

    Attributes
    ----------
    min, max : the bounds; None: there is none
    """

    min: float | None = positional(default=None)
    max: float | None = positional(default=None)

    def __post_init__(self) -> None:
        """Check the fields."""
        bounds = [bound for bound in (self.min, self.max) if bound is not None]
        if not bounds:
            raise SpecError("clamp: needs a bound", hint="set min, max or both")
        if not all(math.isfinite(bound) for bound in bounds) or bounds[0] > bounds[-1]:
            raise SpecError(f"clamp: min and max must be finite, with min ≤ max, got {self.min} and {self.max}")

    def emit(self, scope: Scope, x: int) -> int:
        work = scope.work
        if self.min is not None:
            x = work.binary("max", x, work.scalar(self.min))
        return x if self.max is None else work.binary("min", x, work.scalar(self.max))
