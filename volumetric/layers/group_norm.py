"""GroupNorm (Wu & He 2018, arXiv 1803.08494), with torch's fields."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.graph.numeric.activations import Activation, activate, check_activation, slope
from volumetric.graph.numeric.norms import without_mean
from volumetric.layers.base import (
    Arrays,
    Grads,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_positive,
    layer,
    show_shape,
)
from volumetric.layers.channels import by_channel, channel_params, sum_by_channel
from volumetric.layers.scope import Scope, spread_by_channel


@layer("group_norm")
class GroupNorm(LayerSpec):
    """``y = act((x - mean) / √(var + eps) · w + b)``, mean and biased variance of a sample's group of channels.

    The input is ``[N, num_channels, …]``; w and b have one element for each channel. One group makes it a LayerNorm of
    whole samples, as many groups as channels an instance norm.

    Attributes
    ----------
    num_groups : parts of equal size into which the channels are split
    num_channels : channels of the input
    affine : whether there are w and b
    """

    num_groups: int
    num_channels: int
    eps: float = 1e-5
    affine: bool = True
    activation: Activation = "linear"

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_groups", "num_channels")
        check_activation(self.activation)
        if self.num_channels % self.num_groups:
            raise SpecError(f"group_norm: {self.num_channels} channels do not divide into {self.num_groups} groups")

    def params(self) -> tuple[ParamSpec, ...]:
        return channel_params(self.num_channels) if self.affine else ()

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        if len(shape) < 2 or shape[1] != self.num_channels or min(shape[1:]) < 1:
            raise ShapeError(f"group_norm expects [N, {self.num_channels}, …], got shape {show_shape(shape)}")
        return shape

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        self.output_shape(x.shape)
        groups = x.reshape(len(x), self.num_groups, np.prod(x.shape[1:], dtype=int) // self.num_groups)
        centred = without_mean(groups)
        scale = 1 / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + x.dtype.type(self.eps))
        normal = (centred * scale).reshape(x.shape)
        pre = normal
        if self.affine:
            pre = normal * by_channel(p["weight"], x.ndim) + by_channel(p["bias"], x.ndim)
        return activate(self.activation, pre), {"normal": normal, "scale": scale, "pre": pre}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        normal, scale = saved["normal"], saved["scale"]
        params: dict[str, Array] = {}
        inner = g = gy * slope(self.activation, saved["pre"])
        if self.affine:
            inner = g * by_channel(p["weight"], g.ndim)
            params = {"weight": sum_by_channel(g * normal), "bias": sum_by_channel(g)}
        groups = (len(gy), self.num_groups, np.prod(gy.shape[1:], dtype=int) // self.num_groups)
        inner, normal = inner.reshape(groups), normal.reshape(groups)
        along = np.mean(inner * normal, axis=-1, keepdims=True)
        gx = scale * (inner - inner.mean(axis=-1, keepdims=True) - normal * along)
        return Grads((gx.reshape(gy.shape),), params)

    def emit(self, scope: Scope, x: int) -> int:
        work, p, shape = scope.work, scope.params(self), scope.work.shape(x)
        groups = (shape[0] * self.num_groups, prod(shape[1:]) // self.num_groups)
        y = work.reshape(work.norm(work.reshape(x, groups), kind="layer", eps=self.eps), shape)
        if self.affine:
            gain, bias = (spread_by_channel(work, p[name], len(shape)) for name in ("weight", "bias"))
            y = work.binary("add", work.binary("mul", y, gain), bias)
        return work.unary(y, self.activation)
