"""Norms over groups of channels, written out in NumPy."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.channels import by_channel, sum_by_channel
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.graph.numeric.norms import without_mean
from volumetric.layers.group_norm import GroupNorm


@oracle_of(GroupNorm)
class GroupNormOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        self.spec.output_shape(x.shape)
        groups = x.reshape(len(x), self.spec.num_groups, np.prod(x.shape[1:], dtype=int) // self.spec.num_groups)
        centred = without_mean(groups)
        scale = 1 / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + x.dtype.type(self.spec.eps))
        normal = (centred * scale).reshape(x.shape)
        pre = normal
        if self.spec.affine:
            pre = normal * by_channel(p["weight"], x.ndim) + by_channel(p["bias"], x.ndim)
        return activate(self.spec.activation, pre), {"normal": normal, "scale": scale, "pre": pre}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        normal, scale = saved["normal"], saved["scale"]
        params: dict[str, Array] = {}
        inner = g = gy * slope(self.spec.activation, saved["pre"])
        if self.spec.affine:
            inner = g * by_channel(p["weight"], g.ndim)
            params = {"weight": sum_by_channel(g * normal), "bias": sum_by_channel(g)}
        groups = (len(gy), self.spec.num_groups, np.prod(gy.shape[1:], dtype=int) // self.spec.num_groups)
        inner, normal = inner.reshape(groups), normal.reshape(groups)
        along = np.mean(inner * normal, axis=-1, keepdims=True)
        gx = scale * (inner - inner.mean(axis=-1, keepdims=True) - normal * along)
        return Grads((gx.reshape(gy.shape),), params)
