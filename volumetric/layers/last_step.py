"""LastStep: what a sequence comes to at its end."""

from __future__ import annotations

from volumetric._typing import Shape
from volumetric.errors import ShapeError
from volumetric.layers.base import LayerSpec, layer, show_shape
from volumetric.layers.scope import Scope


@layer("last_step")
class LastStep(LayerSpec):
    """Last step of each sequence, ``y[n] = x[n, T - 1]``: ``[N, T, …]`` becomes ``[N, …]``.

    Behind a recurrent layer on ``[N, T, features]`` it gives the state after the whole sequence. A sample is one row of
    shape ``[T, features]`` here; where the steps are the rows themselves, devices return the last one on request.
    """

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        if len(shape) < 3 or shape[1] < 1:
            raise ShapeError(
                f"last_step expects sequences [N, T, …] of at least one step, got shape {show_shape(shape)}",
                hint="a sample is one row: input_shape=(T, features)",
            )
        return (shape[0], *shape[2:])

    def emit(self, scope: Scope, x: int) -> int:
        work, shape = scope.work, scope.work.shape(x)
        return work.reshape(work.part(x, 1, shape[1] - 1, shape[1]), self.output_shape(shape))
