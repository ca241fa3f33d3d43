"""In NumPy: shortConv: LFM2's operator, a gated causal convolution over a few rows."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covering
from tests.oracles.numeric.causal_conv import causal_conv, causal_conv_vjp
from volumetric.base._typing import Array
from volumetric.layers.short_conv import ShortConv


@oracle_of(ShortConv)
class ShortConvOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        kept, keep = covering(memory, x.shape)
        b, c, v = np.split(affine(p, "in.", x), 3, axis=-1)
        mixed, rows, seen = causal_conv(p["conv.weight"], p.get("conv.bias"), b * v, kept, keep)
        gated = c * mixed
        saved = {"x": x, "b": b, "c": c, "v": v, "mixed": mixed, "rows": rows, "seen": seen, "gated": gated}
        return affine(p, "out.", gated), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_gated = affine_vjp(p, "out.", saved["gated"], gy, params)
        g_mixed = g_gated * saved["c"]
        g_product, params["conv.weight"] = causal_conv_vjp(p["conv.weight"], saved["rows"], g_mixed, saved["seen"])
        if self.bias:
            params["conv.bias"] = g_mixed.reshape(-1, self.embed_dim).sum(0)
        parts = (g_product * saved["v"], g_gated * saved["mixed"], g_product * saved["b"])
        gx = affine_vjp(p, "in.", saved["x"], np.concatenate(parts, axis=-1), params)
        return Grads((gx,), params)
