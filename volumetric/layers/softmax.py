"""Softmax, the base of all layers that turn logits along an axis into probabilities, and the soft cap of logits."""

from __future__ import annotations

import math
from math import prod

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import LayerSpec, layer, layer_base, show_shape


@layer_base
class AxisSoftmax(LayerSpec):
    """Base of the layers that turn logits along one axis into probabilities.

    A slice whose logits are all -inf gives zeros. A slice with NaN or +inf gives NaN, and does not affect the others
    (docs/numbers.md).

    Attributes
    ----------
    temperature : τ, the divisor of the logits
    axis : axis of the logits, from the front or (below 0) from the end; never the first one, which counts rows
    """

    temperature: float = 1.0
    axis: int = positional(default=-1)

    def __post_init__(self) -> None:
        """Check the fields."""
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise SpecError(f"{self.kind}: temperature must be above 0, got {self.temperature}")
        if self.axis == 0:
            raise SpecError(f"{self.kind}: axis must not be 0, the axis of rows", hint="axis=-1 is the last axis")

    def outcomes(self, size: int) -> int:
        """Return the number of probabilities for `size` logits; raise `ShapeError` for an invalid number of logits."""
        return size

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        if not 0 < axis < len(shape):
            raise ShapeError(
                f"{self.kind} needs an axis {self.axis} other than the rows, got shape {show_shape(shape)}"
            )
        return (*shape[:axis], self.outcomes(shape[axis]), *shape[axis + 1 :])

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        """Emit the probabilities of each row of `z`, ``[rows, size]``."""
        raise NotImplementedError(self.kind)

    def emit(self, scope: Scope, x: int) -> int:
        """Move the axis to the end, divide by the temperature, compute probabilities, and move the axis back."""
        work = scope.work
        count = len(work.shape(x))
        axis = self.axis % count
        there = (*(i for i in range(count) if i != axis), axis)
        z = work.affine(work.permute(x, there), 1 / self.temperature)
        *lead, size = work.shape(z)
        y = self.probability_nodes(work, work.reshape(z, (prod(lead), size)))
        y = work.reshape(y, (*lead, work.shape(y)[1]))
        return work.permute(y, tuple(there.index(i) for i in range(count)))


@layer("softmax")
class Softmax(AxisSoftmax):
    """A softmax along an axis; slices as in `AxisSoftmax`.

    ::

        y_i = exp(x_i / τ) / Σ_j exp(x_j / τ)

    Gradient: ``x̄ = y (gy − Σ gy y) / τ``. Every row is a distribution of its own. The Go engine Loom makes one
    distribution of all rows together, so networks that read several rows at once differ (docs/loom.md).
    """

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        return work.softmax(z)


@layer("softcap")
class Softcap(LayerSpec):
    """Bounds logits softly, as Gemma 2 does (arXiv 2408.00118).

    ::

        y = cap · tanh(x / cap)

    Attributes
    ----------
    cap : bound of the output
    """

    cap: float = positional()

    def __post_init__(self) -> None:
        """Check the fields."""
        if not (self.cap > 0 and math.isfinite(self.cap)):
            raise SpecError(f"softcap: cap must be above 0, got {self.cap}")

    def emit(self, scope: Scope, x: int) -> int:
        work = scope.work
        return work.affine(work.unary(work.affine(x, 1 / self.cap), "tanh"), self.cap)
