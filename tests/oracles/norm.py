"""In NumPy: rMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467) and LayerNorm (Ba et al. 2016, arXiv 1607.06450)."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of, rows
from tests.oracles.memory import Memory
from tests.oracles.numeric.norms import rms_norm_vjp, standardised
from volumetric.base._typing import Array
from volumetric.graph.numeric.norms import rms_norm
from volumetric.layers.norm import LayerNorm, RMSNorm


@oracle_of(RMSNorm)
class RMSNormOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        gain = p["weight"] + 1 if self.unit_offset else p["weight"]
        y, scale = rms_norm(xs[0], gain, self.eps)
        return y, {"x": xs[0], "scale": scale, "gain": gain}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        gx, gain = rms_norm_vjp(saved["x"], saved["gain"], saved["scale"], gy)
        return Grads((gx,), {"weight": gain})


@oracle_of(LayerNorm)
class LayerNormOracle(Oracle):
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
