"""RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467) and LayerNorm (Ba et al. 2016, arXiv 1607.06450)."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.graph.numeric.norms import rms_norm, rms_norm_vjp, standardised
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
from volumetric.layers.scope import Scope, flat


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

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        y = work.norm(flat(work, x), p["weight"], kind="rms", eps=self.eps, unit_offset=self.unit_offset)
        return work.reshape(y, work.shape(x))


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

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        return work.reshape(
            work.norm(flat(work, x), p["weight"], p.get("bias"), kind="layer", eps=self.eps), work.shape(x)
        )
