"""GroupNorm (Wu & He 2018, arXiv 1803.08494), with torch's fields."""

from __future__ import annotations

from math import prod

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers.channel_params import channel_params
from volumetric.layers.emit_scope import Scope, spread_by_channel
from volumetric.layers.layer_fields import activation_name, by_keyword, positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_positive,
    layer,
    show_shape,
)


@layer("group_norm")
class GroupNorm(LayerSpec):
    """Normalises groups of channels of each sample, on ``[N, num_channels, …]``.

    ::

        y = act((x − mean) / √(var + eps) · w[c] + b[c])     mean and var over a group of channels and all positions

    The variance is the biased one about the mean; w and b have one element for each channel. Gradients, with z the
    normalised input, h = gy · w and means over a group: ``x̄ = (h − mean(h) − z · mean(h z)) / √(var + eps)``,
    ``w̄ = Σ gy z``, ``b̄ = Σ gy``.

    ``num_groups=1`` normalises whole samples, as a LayerNorm of them. ``num_groups=num_channels`` normalises each
    channel of a sample (instance norm). Rows do not see each other, so training and inference are the same.

    Wu & He 2018 (arXiv 1803.08494).

    Attributes
    ----------
    num_groups : parts of equal size into which the channels are split
    num_channels : channels of the input
    eps : added to the variance
    affine : whether there are w and b
    activation : function of every element at the end
    """

    num_groups: int = positional()
    num_channels: int = positional()
    eps: float = positional(default=1e-5)
    affine: bool = True
    activation: Activation = by_keyword(default="linear", converter=activation_name)

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_groups", "num_channels")
        if self.num_channels % self.num_groups:
            raise SpecError(f"group_norm: {self.num_channels} channels do not divide into {self.num_groups} groups")

    def params(self) -> tuple[ParamSpec, ...]:
        return channel_params(self.num_channels) if self.affine else ()

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        if len(shape) < 2 or shape[1] != self.num_channels or min(shape[1:]) < 1:
            raise ShapeError(f"group_norm expects [N, {self.num_channels}, …], got shape {show_shape(shape)}")
        return shape

    def emit(self, scope: Scope, x: int) -> int:
        work, p, shape = scope.work, scope.params(self), scope.work.shape(x)
        groups = (shape[0] * self.num_groups, prod(shape[1:]) // self.num_groups)
        y = work.reshape(work.norm(work.reshape(x, groups), kind="layer", eps=self.eps), shape)
        if self.affine:
            gain, bias = (spread_by_channel(work, p[name], len(shape)) for name in ("weight", "bias"))
            y = work.binary("add", work.binary("mul", y, gain), bias)
        return work.unary(y, self.activation)
