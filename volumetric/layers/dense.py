"""Dense: the affine map."""

from __future__ import annotations

from volumetric.base._typing import Shape
from volumetric.graph.numeric.activations import Activation
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_fields import activation_name, keep_width, positional
from volumetric.layers.layer_spec import (
    Init,
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


def affine_params(
    name: str, out_features: int, in_features: int, *, bias: bool, init: Init = "fan_in"
) -> tuple[ParamSpec, ...]:
    """Return the parameters of an affine map below the path `name`; `init` is for the matrix."""
    weight = ParamSpec(name=name + "weight", shape=(out_features, in_features), init=init)
    if not bias:
        return (weight,)
    return weight, ParamSpec(name=name + "bias", shape=(out_features,), init="zeros", packable=False)


@layer("dense")
class Dense(LayerSpec):
    """Affine map of the last axis, row by row.

    ::

        y = act(x Wᵀ + b)

    x is ``[N, …, in_features]``, W ``[out_features, in_features]``; all leading axes are rows. Gradients: with
    ``g = gy · act'(x Wᵀ + b)``, ``W̄ = gᵀ x``, ``b̄ = Σ g``, ``x̄ = g W``. Activations are functions of each element
    (docs/formulas.md); the default is linear.

    Attributes
    ----------
    in_features : features of a row of input
    out_features : features of a row of output; as many as of the input if left out
    bias : whether there is b
    activation : function of every element at the end
    """

    in_features: int = positional()
    out_features: int = positional(default=None)
    bias: bool = True
    activation: Activation = positional(default="linear", converter=activation_name)

    def __post_init__(self) -> None:
        """Check the fields."""
        keep_width(self, "out_features", "in_features")
        expect_positive(self, "in_features", "out_features")

    def params(self) -> tuple[ParamSpec, ...]:
        return affine_params("", self.out_features, self.in_features, bias=self.bias)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.out_features)

    def emit(self, scope: Scope, x: int) -> int:
        return linear(scope.work, scope.params(self), ("",), x, activation=self.activation)
