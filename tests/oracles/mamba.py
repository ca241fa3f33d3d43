"""In NumPy: mamba: a selective state-space layer (https://arxiv.org/abs/2312.00752)."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covering
from tests.oracles.numeric.causal_conv import causal_conv, causal_conv_vjp
from tests.oracles.numeric.selective_scan import keep_last, scan_start, selective_scan_vjp
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, sigmoid, slope
from volumetric.graph.operations.state_space import SelectiveScanInputs, selective_scan, softplus
from volumetric.layers.mamba import Mamba


@oracle_of(Mamba)
class MambaOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        kept, keep = covering(memory, x.shape)
        lead, inner = x.shape[:-1], self.inner_features
        v, z = np.split(affine(p, "in.", x), 2, axis=-1)
        mixed, rows, seen = causal_conv(p["conv.weight"], p.get("conv.bias"), v, kept, keep)
        u = activate("silu", mixed)
        r, b, c = np.split(affine(p, "x.", u), np.cumsum(self.products)[:2], axis=-1)
        pre = affine(p, "dt.", r)
        given = self._as_heads(u, softplus(pre), p["a_log"], b, c)
        start = scan_start(kept, (len(given[0]), self.state_size, inner, 1), x)
        of = selective_scan(given, start, None if keep is None else keep.reshape(len(given[0]), -1))
        keep_last(kept, of.states, x)
        scanned = of.y.reshape(*lead, inner) + p["d"] * u
        gate = activate("silu", z)
        saved = {"x": x, "z": z, "rows": rows, "mixed": mixed, "u": u, "r": r, "pre": pre, "given": given, "of": of}
        gated = scanned * gate
        return affine(p, "out.", gated), {**saved, "seen": seen, "scanned": scanned, "gate": gate, "gated": gated}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        u, inner = saved["u"], self.inner_features
        g_gated = affine_vjp(p, "out.", saved["gated"], gy, params)
        g_z = g_gated * saved["scanned"] * slope("silu", saved["z"])
        g_scanned = g_gated * saved["gate"]
        x, _, a, *_ = saved["given"]
        of = selective_scan_vjp(saved["of"], saved["given"], g_scanned.reshape(x.shape))
        params["a_log"] = of.a * a
        params["d"] = (g_scanned * u).reshape(-1, inner).sum(0)
        g_pre = of.dt.reshape(u.shape) * sigmoid(saved["pre"])
        g_r = affine_vjp(p, "dt.", saved["r"], g_pre, params)
        g_products = [g_r, *(g.reshape(*u.shape[:-1], self.state_size) for g in (of.b, of.c))]
        g_u = of.x.reshape(u.shape) + p["d"] * g_scanned
        g_u = g_u + affine_vjp(p, "x.", u, np.concatenate(g_products, axis=-1), params)
        g_mixed = g_u * slope("silu", saved["mixed"])
        g_v, params["conv.weight"] = causal_conv_vjp(p["conv.weight"], saved["rows"], g_mixed, saved["seen"])
        if self.conv_bias:
            params["conv.bias"] = g_mixed.reshape(-1, inner).sum(0)
        gx = affine_vjp(p, "in.", saved["x"], np.concatenate([g_v, g_z], axis=-1), params)
        return Grads((gx,), params)

    def _as_heads(self, u: Array, dt: Array, a_log: Array, b: Array, c: Array) -> SelectiveScanInputs:
        """What the scan takes, with heads of one channel in one group."""
        length, size = u.shape[-2], self.state_size
        shapes = ((self.inner_features, 1), (self.inner_features,), (1, size), (1, size))
        x, dt, b, c = (part.reshape(-1, length, *shape) for part, shape in zip((u, dt, b, c), shapes, strict=True))
        return SelectiveScanInputs(x, dt, -np.exp(a_log), b, c)
