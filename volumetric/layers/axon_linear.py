"""AxonLinear: the sum of an affine map and an Axon, so that the result depends on earlier rows."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.graph.numeric.activations import Activation
from volumetric.graph.state_spec import StateSpec
from volumetric.layers.axon import Axon, Mix
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_fields import activation_name, by_keyword, keep_width, positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    layer,
)


@layer("axon_linear")
class AxonLinear(LayerSpec):
    """An affine map that also sees earlier rows, on ``[…, T, in_features]``; it can replace any affine map.

    ::

        y = x Wᵀ + b + axon(x)

    It is the sum of a `Dense` layer and an `Axon` on the same rows. Its state is that of the Axon.

    Attributes
    ----------
    in_features, out_features : widths of input and output
    bias : whether there is b; the `Axon` always has one
    activation, mix, r_min, r_max, max_phase, traces, seed : of the `Axon`, which has as many pairs as input features
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    in_features: int = positional()
    out_features: int = positional(default=None)
    bias: bool = True
    activation: Activation = by_keyword(default="linear", converter=activation_name)
    mix: Mix = "linear"
    r_min: float = 0.0
    r_max: float = 1.0
    max_phase: float = 6.28
    traces: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        keep_width(self, "out_features", "in_features")
        _ = self.axon

    @property
    def axon(self) -> Axon:
        """The `Axon` that is added to the map."""
        return Axon(
            in_features=self.in_features,
            out_features=self.out_features,
            activation=self.activation,
            mix=self.mix,
            r_min=self.r_min,
            r_max=self.r_max,
            max_phase=self.max_phase,
            traces=self.traces,
            seed=self.seed,
        )

    def params(self) -> tuple[ParamSpec, ...]:
        own = affine_params("", self.out_features, self.in_features, bias=self.bias)
        return *own, *(replace(param, name=f"axon/{param.name}") for param in self.axon.params())

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        return tuple(state.with_prefix("axon") for state in self.axon.states(*inputs))

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.out_features)

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, {of.name: scope.param(of.name, of.shape) for of in self.params() if "/" not in of.name}
        with work.at(scope.path, mixes=False):
            own = linear(work, p, ("",), x)
        beside = scope.child("axon").emit(self.axon, x)
        with work.at(scope.path, mixes=False):
            return work.add(own, beside)
