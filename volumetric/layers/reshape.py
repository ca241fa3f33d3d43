"""Reshape: views the elements of each row in another shape."""

from __future__ import annotations

import math

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import LayerSpec, layer, show_shape


@layer("reshape")
class Reshape(LayerSpec):
    """Changes the shape of every row, in row-major order.

    ::

        y[n] = the elements of x[n] in the shape `shape`

    The first axis counts rows or samples and does not change. ``Reshape(shape=(-1,))`` flattens images for a dense
    layer, ``Reshape(shape=(8, 7, 7))`` makes images of features.

    Attributes
    ----------
    shape : of a row; one size may be -1, for the remaining elements
    """

    shape: tuple[int, ...] = positional()

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.shape or any(n < 1 and n != -1 for n in self.shape) or self.shape.count(-1) > 1:
            raise SpecError(f"reshape: sizes must be above 0, and one may be -1, got {self.shape!r}")

    def output_shape(self, *inputs: Shape) -> Shape:
        rows, *row = inputs[0]
        size, known = math.prod(row), math.prod(n for n in self.shape if n != -1)
        if size % known or (size != known and -1 not in self.shape):
            raise ShapeError(f"reshape: cannot reshape rows of {show_shape(tuple(row))} to {list(self.shape)}")
        return (rows, *(size // known if n == -1 else n for n in self.shape))

    def emit(self, scope: Scope, x: int) -> int:
        return scope.work.reshape(x, self.output_shape(scope.work.shape(x)))
