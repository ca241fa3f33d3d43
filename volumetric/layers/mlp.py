"""Feed-forward blocks: the gated family (SwiGLU, GeGLU, …; Shazeer 2020, arXiv 2002.05202) and the plain MLP."""

from __future__ import annotations

from volumetric._typing import Array, Shape
from volumetric.layers.activations import Activation, activate, check_activation, slope
from volumetric.layers.base import (
    Arrays,
    Grads,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.dense import affine, affine_params, affine_vjp


@layer("swiglu")
class SwiGLU(LayerSpec):
    """Gated block ``y = (act(x Wgᵀ + bg) ⊙ (x Wuᵀ + bu)) Wdᵀ + bd``; SiLU makes it SwiGLU, GELU makes it GeGLU."""

    in_features: int
    hidden_features: int
    activation: Activation = "silu"
    bias: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "in_features", "hidden_features")
        check_activation(self.activation)

    def params(self) -> tuple[ParamSpec, ...]:
        wide = (self.hidden_features, self.in_features)
        return (
            *affine_params("gate.", *wide, bias=self.bias),
            *affine_params("up.", *wide, bias=self.bias),
            *affine_params("down.", *wide[::-1], bias=self.bias),
        )

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return inputs[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        gate, up = affine(p, "gate.", xs[0]), affine(p, "up.", xs[0])
        opened = activate(self.activation, gate)
        hidden = opened * up
        saved: Saved = {"x": xs[0], "gate": gate, "up": up, "opened": opened, "hidden": hidden}
        return affine(p, "down.", hidden), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_hidden = affine_vjp(p, "down.", saved["hidden"], gy, params)
        g_gate = g_hidden * saved["up"] * slope(self.activation, saved["gate"])
        gx = affine_vjp(p, "gate.", saved["x"], g_gate, params)
        gx = gx + affine_vjp(p, "up.", saved["x"], g_hidden * saved["opened"], params)
        return Grads((gx,), params)


@layer("mlp")
class MLP(LayerSpec):
    """Plain block ``y = act(x Wuᵀ + bu) Wdᵀ + bd``."""

    in_features: int
    hidden_features: int
    activation: Activation = "gelu"
    bias: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "in_features", "hidden_features")
        check_activation(self.activation)

    def params(self) -> tuple[ParamSpec, ...]:
        wide = (self.hidden_features, self.in_features)
        return (*affine_params("up.", *wide, bias=self.bias), *affine_params("down.", *wide[::-1], bias=self.bias))

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return inputs[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        up = affine(p, "up.", xs[0])
        hidden = activate(self.activation, up)
        return affine(p, "down.", hidden), {"x": xs[0], "up": up, "hidden": hidden}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_up = affine_vjp(p, "down.", saved["hidden"], gy, params) * slope(self.activation, saved["up"])
        return Grads((affine_vjp(p, "up.", saved["x"], g_up, params),), params)
