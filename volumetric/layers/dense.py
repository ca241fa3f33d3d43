"""Dense: the affine map."""

from __future__ import annotations

from volumetric._typing import Array, Shape
from volumetric.graph.numeric.activations import Activation, activate, check_activation, slope
from volumetric.layers.base import (
    Arrays,
    Grads,
    Init,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_last,
    expect_positive,
    layer,
    rows,
)
from volumetric.layers.scope import Scope, linear


def affine(p: Arrays, name: str, x: Array) -> Array:
    """Return ``x Wᵀ + b`` for the parameters ``{name}weight`` and, where present, ``{name}bias``."""
    y = x @ p[name + "weight"].T
    bias = p.get(name + "bias")
    return y if bias is None else y + bias


def affine_vjp(p: Arrays, name: str, x: Array, gy: Array, out: dict[str, Array]) -> Array:
    """Put the gradients of `affine`'s parameters into `out`; return the gradient of `x`."""
    out[name + "weight"] = rows(gy).T @ rows(x)
    if name + "bias" in p:
        out[name + "bias"] = rows(gy).sum(0)
    return gy @ p[name + "weight"]


def affine_params(
    name: str, out_features: int, in_features: int, *, bias: bool, init: Init = "fan_in"
) -> tuple[ParamSpec, ...]:
    """Parameters of one affine map below the path `name`; `init` is of the matrix."""
    weight = ParamSpec(name=name + "weight", shape=(out_features, in_features), init=init)
    if not bias:
        return (weight,)
    return weight, ParamSpec(name=name + "bias", shape=(out_features,), init="zeros", packable=False)


@layer("dense")
class Dense(LayerSpec):
    """Affine map ``y = act(x Wᵀ + b)`` on the last axis, W is ``[out_features, in_features]``."""

    in_features: int
    out_features: int
    bias: bool = True
    activation: Activation = "linear"

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "in_features", "out_features")
        check_activation(self.activation)

    def params(self) -> tuple[ParamSpec, ...]:
        return affine_params("", self.out_features, self.in_features, bias=self.bias)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.out_features)

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        pre = affine(p, "", xs[0])
        return activate(self.activation, pre), {"x": xs[0], "pre": pre}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        gx = affine_vjp(p, "", saved["x"], gy * slope(self.activation, saved["pre"]), params)
        return Grads((gx,), params)

    def emit(self, scope: Scope, x: int) -> int:
        return linear(scope.work, scope.params(self), ("",), x, activation=self.activation)
