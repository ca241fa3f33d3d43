"""LastStep: the last step of each sequence."""

from __future__ import annotations

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_spec import LayerSpec, layer, show_shape


@layer("last_step")
class LastStep(LayerSpec):
    """The last step of each sequence: ``[N, T, …]`` becomes ``[N, …]``.

    ::

        y[n] = x[n, T − 1]

    It ends a network that reads a whole sequence and answers once: `LSTM` on rows of shape ``[T, features]``,
    ``LastStep``, `Dense`. If the steps are the rows themselves, devices return the last one on request. The gradient of
    all other steps is 0.
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
