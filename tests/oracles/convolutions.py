"""Convolutions written out in NumPy, as products with the windows of an image."""

from __future__ import annotations

import math

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.layers.conv import Conv, Spatial
from volumetric.layers.conv_transpose import ConvTranspose


@oracle_of(Spatial)
class SpatialOracle(Oracle):
    def finish(self, p: Arrays, pre: Array, saved: Saved) -> tuple[Array, Saved]:
        """Add the bias and apply the activation."""
        if self.spec.bias:
            pre = pre + p["bias"].reshape(-1, *(1,) * self.spec.spatial)
        return activate(self.spec.activation, pre), {**saved, "pre": pre}

    def finish_vjp(self, saved: Saved, gy: Array) -> tuple[Array, dict[str, Array]]:
        """Return the gradient of what `finish` took, and that of the bias."""
        g = gy * slope(self.spec.activation, saved["pre"])
        return g, {"bias": g.sum((0, *range(2, g.ndim)))} if self.spec.bias else {}

    def split(self, x: Array) -> Array:
        """View an image by groups, its pixels in one axis: ``[N, C, *sizes] -> [N, groups, C / groups, ∏sizes]``."""
        samples, channels, *sizes = x.shape
        return x.reshape(samples, self.spec.groups, channels // self.spec.groups, math.prod(sizes))


@oracle_of(Conv)
class ConvOracle(SpatialOracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        shape = self.spec.output_shape(xs[0].shape)
        columns = self.spec.windows().unfold(xs[0], shape[2:], self.spec.groups)
        return self.finish(p, (self._matrix(p) @ columns).reshape(shape), {"x": xs[0]})

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        g, params = self.finish_vjp(saved, gy)
        x, windows, counts = saved["x"], self.spec.windows(), g.shape[2:]
        by_group = self.split(g)
        # Made again: it is as many times larger than x as W has taps.
        columns = windows.unfold(x, counts, self.spec.groups)
        params["weight"] = sum_of_products(by_group, columns).reshape(p["weight"].shape)
        return Grads((windows.fold(self._matrix(p).swapaxes(-1, -2) @ by_group, counts, x.shape[2:]),), params)

    def _matrix(self, p: Arrays) -> Array:  # [groups, out / groups, in / groups · ∏kernel]
        weight = p["weight"]
        return weight.reshape(self.spec.groups, self.spec.out_channels // self.spec.groups, math.prod(weight.shape[1:]))


@oracle_of(ConvTranspose)
class ConvTransposeOracle(SpatialOracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        sizes = self.spec.output_shape(x.shape)[2:]
        columns = self._matrix(p).swapaxes(-1, -2) @ self.split(x)
        return self.finish(p, self.spec.windows().fold(columns, x.shape[2:], sizes), {"x": x})

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        g, params = self.finish_vjp(saved, gy)
        x = saved["x"]
        columns = self.spec.windows().unfold(g, x.shape[2:], self.spec.groups)
        params["weight"] = sum_of_products(self.split(x), columns).reshape(p["weight"].shape)
        return Grads(((self._matrix(p) @ columns).reshape(x.shape),), params)

    def _matrix(self, p: Arrays) -> Array:  # [groups, in / groups, out / groups · ∏kernel]
        weight = p["weight"]
        return weight.reshape(self.spec.groups, self.spec.in_channels // self.spec.groups, math.prod(weight.shape[1:]))


def sum_of_products(a: Array, b: Array) -> Array:
    """Sum ``a bᵀ`` over samples: ``[N, G, A, O], [N, G, B, O] -> [G, A, B]``."""
    total = np.zeros((a.shape[1], a.shape[2], b.shape[2]), a.dtype)
    for left, right in zip(a, b, strict=True):  # one product for all samples would first have to copy both sides
        total += left @ right.swapaxes(-1, -2)
    return total
