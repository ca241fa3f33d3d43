"""RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467) and LayerNorm (Ba et al. 2016, arXiv 1607.06450)."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array, Shape
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
    rows,
)


def without_mean(x: Array) -> Array:
    """Return ``x - mean(x)`` over the last axis, and what rounding took from the mean: a large one costs nothing."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred - centred.mean(axis=-1, keepdims=True)


def standardised(x: Array, eps: float) -> tuple[Array, Array]:
    """Return ``(x - mean) / √(var + eps)`` over the last axis, and the reciprocal root ``[..., 1]``."""
    centred = without_mean(x)
    scale = 1 / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + x.dtype.type(eps))
    return centred * scale, scale


def rms_norm(x: Array, gain: Array, eps: float) -> tuple[Array, Array]:
    """Return ``x / √(mean(x²) + eps) · gain`` over the last axis, and the reciprocal root ``[..., 1]``."""
    scale = 1 / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + x.dtype.type(eps))
    return x * scale * gain, scale


def rms_norm_vjp(x: Array, gain: Array, scale: Array, gy: Array) -> tuple[Array, Array]:
    """Return the gradients of `x` and `gain`."""
    inner, normal = gy * gain, x * scale
    gx = scale * (inner - normal * np.mean(inner * normal, axis=-1, keepdims=True))
    return gx, rows(gy * normal).sum(0)


@layer("rms_norm")
class RMSNorm(LayerSpec):
    """``y = x / √(mean(x²) + eps) · w`` over the last axis; with `unit_offset` the gain is ``1 + w`` (Gemma)."""

    num_features: int
    eps: float = 1e-6
    unit_offset: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_features")

    def params(self) -> tuple[ParamSpec, ...]:
        init = "zeros" if self.unit_offset else "ones"
        return (ParamSpec(name="weight", shape=(self.num_features,), init=init, packable=False),)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.num_features)
        return inputs[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        gain = p["weight"] + 1 if self.unit_offset else p["weight"]
        y, scale = rms_norm(xs[0], gain, self.eps)
        return y, {"x": xs[0], "scale": scale, "gain": gain}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        gx, gain = rms_norm_vjp(saved["x"], saved["gain"], saved["scale"], gy)
        return Grads((gx,), {"weight": gain})


@layer("layer_norm")
class LayerNorm(LayerSpec):
    """``y = (x - mean) / √(var + eps) · w + b`` over the last axis, with the biased variance about the mean."""

    num_features: int
    eps: float = 1e-5
    bias: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_features")

    def params(self) -> tuple[ParamSpec, ...]:
        weight = ParamSpec(name="weight", shape=(self.num_features,), init="ones", packable=False)
        if not self.bias:
            return (weight,)
        return weight, ParamSpec(name="bias", shape=(self.num_features,), init="zeros", packable=False)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.num_features)
        return inputs[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        normal, scale = standardised(xs[0], self.eps)
        y = normal * p["weight"]
        return (y + p["bias"] if self.bias else y), {"normal": normal, "scale": scale}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        normal, scale = saved["normal"], saved["scale"]
        inner = gy * p["weight"]
        along = np.mean(inner * normal, axis=-1, keepdims=True)
        gx = scale * (inner - inner.mean(axis=-1, keepdims=True) - normal * along)
        params = {"weight": rows(gy * normal).sum(0)}
        if self.bias:
            params["bias"] = rows(gy).sum(0)
        return Grads((gx,), params)
