"""Feed-forward blocks: the gated family (SwiGLU, GeGLU, …; Shazeer 2020, arXiv 2002.05202) and the plain MLP."""

from __future__ import annotations

import math

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, emit_gated, linear
from volumetric.layers.layer_fields import activation_name, by_keyword, positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("swiglu")
class SwiGLU(LayerSpec):
    """The gated feed-forward block: SwiGLU with SiLU, GeGLU with GELU.

    ::

        y = (act(x Wgᵀ + bg) ⊙ (x Wuᵀ + bu)) Wdᵀ + bd

    With a `limit` c the hidden elements are ``act(min(g, c)) ⊙ (clamp(u, −c, c) + up_offset)`` of gate g and up u
    (gpt-oss, arXiv 2508.10925, with quick_gelu, 7 and 1). At the bounds gradients pass, as in torch.clamp.

    Shazeer 2020 (arXiv 2002.05202).

    Attributes
    ----------
    in_features : width of input and output
    hidden_features : width between the products
    activation : of the gate
    bias : whether the three projections have biases
    limit : bound on gate (above) and up (both sides), or None
    up_offset : added to up after the bound; it needs a `limit`
    gate_factor : the activation is of ``gate_factor · (x Wgᵀ + bg)`` (Falcon-H1)
    """

    in_features: int = positional()
    hidden_features: int = positional()
    activation: Activation = by_keyword(default="silu", converter=activation_name)
    bias: bool = False
    limit: float | None = None
    up_offset: float = 0.0
    gate_factor: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "in_features", "hidden_features")
        if self.limit is not None and not 0 < self.limit < math.inf:
            raise SpecError(f"swiglu: limit must be a number above 0, got {self.limit}")
        if self.limit is not None and self.gate_factor != 1:
            raise SpecError("swiglu: limit and gate_factor exclude each other")
        if not math.isfinite(self.up_offset) or (self.up_offset and self.limit is None):
            raise SpecError(f"swiglu: up_offset {self.up_offset} must be finite, and 0 without a limit")

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

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        if self.gate_factor != 1:
            gate = work.affine(linear(work, p, ("gate.",), x), self.gate_factor)
            return linear(work, p, ("down.",), emit_gated(work, gate, linear(work, p, ("up.",), x), self.activation))
        bounds = {"limit": self.limit, "up_offset": self.up_offset}
        hidden = linear(work, p, ("gate.", "up."), x, activation=self.activation, combine="gated", **bounds)
        return linear(work, p, ("down.",), hidden)


@layer("mlp")
class MLP(LayerSpec):
    """The plain feed-forward block of GPT-2 and BERT.

    ::

        y = act(x Wuᵀ + bu) Wdᵀ + bd

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.3.

    Attributes
    ----------
    in_features : width of input and output
    hidden_features : width between the two products
    activation : function of every element between the two products
    bias : whether there are bu and bd
    """

    in_features: int = positional()
    hidden_features: int = positional()
    activation: Activation = by_keyword(default="gelu", converter=activation_name)
    bias: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "in_features", "hidden_features")

    def params(self) -> tuple[ParamSpec, ...]:
        wide = (self.hidden_features, self.in_features)
        return (*affine_params("up.", *wide, bias=self.bias), *affine_params("down.", *wide[::-1], bias=self.bias))

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        return linear(work, p, ("down.",), linear(work, p, ("up.",), x, activation=self.activation))
