"""Flatten: merges several axes, with torch's fields."""

from __future__ import annotations

import math

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import LayerSpec, layer, show_shape


@layer("flatten")
class Flatten(LayerSpec):
    """Merges neighbouring axes into one.

    ::

        y[n, i·b + j] = x[n, i, j]          for x [N, a, b]

    The layer moves no elements. The axes from `start_dim` to `end_dim`, both included, become one. Axis 0 counts rows
    and is never merged.

    Attributes
    ----------
    start_dim, end_dim : axes, counted from the front with the rows as 0, or (below 0) from the end
    """

    start_dim: int = positional(default=1)
    end_dim: int = positional(default=-1)

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.start_dim == 0:
            raise SpecError("flatten: axis 0 counts rows and stays", hint="start_dim=1 flattens each row")

    def output_shape(self, *inputs: Shape) -> Shape:
        shape, count = inputs[0], len(inputs[0])
        start, end = (axis + count if axis < 0 else axis for axis in (self.start_dim, self.end_dim))
        if not 1 <= start <= end < count:
            raise ShapeError(
                f"flatten: axes {self.start_dim} to {self.end_dim} must be axes of {show_shape(shape)} after the rows"
            )
        return (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])

    def emit(self, scope: Scope, x: int) -> int:
        return scope.work.reshape(x, self.output_shape(scope.work.shape(x)))
