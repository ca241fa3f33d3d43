"""In NumPy: mamba2: a selective state-space layer with one decay a head (https://arxiv.org/abs/2405.21060)."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covering
from tests.oracles.numeric.causal_conv import causal_conv, causal_conv_vjp
from tests.oracles.numeric.norms import rms_norm_vjp
from tests.oracles.numeric.selective_scan import keep_last, scan_start, selective_scan_vjp
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, sigmoid, slope
from volumetric.graph.numeric.norms import rms_norm
from volumetric.graph.operations.state_space import SelectiveScanInputs, selective_scan, softplus
from volumetric.layers.mamba2 import Mamba2


@oracle_of(Mamba2)
class Mamba2Oracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        kept, keep = covering(memory, x.shape)
        z, w, r = np.split(affine(p, "in.", x), np.cumsum(self.projected_width)[:2], axis=-1)
        z, r = z * x.dtype.type(self.multipliers[0]), r * x.dtype.type(self.multipliers[4])
        weight = p["conv.weight"] * self._factors(x)
        mixed, rows, seen = causal_conv(weight, p.get("conv.bias"), w, kept, keep)
        pre = r + p["dt_bias"]
        open_dt = softplus(pre)
        v, b, c = np.split(activate("silu", mixed), np.cumsum(self.conv_width)[:2], axis=-1)
        given = self._as_heads(v, np.clip(open_dt, self.dt_min, self.dt_max), p["a_log"], b, c)
        heads = given[0]
        start = scan_start(kept, (len(heads), self.state_size, self.num_heads, self.head_dim), x)
        of = selective_scan(given, start, None if keep is None else keep.reshape(len(heads), -1))
        keep_last(kept, of.states, x)
        scanned = (of.y + p["d"][:, None] * heads).reshape(z.shape)
        gate = activate("silu", z)
        normal, more = self._normed(p, scanned if self.gated_last else scanned * gate)
        ready = normal * gate if self.gated_last else normal
        saved = {"x": x, "z": z, "w": w, "rows": rows, "mixed": mixed, "pre": pre, "open_dt": open_dt, "given": given}
        saved |= {"of": of, "seen": seen, "scanned": scanned, "gate": gate, "normal": normal, "ready": ready, **more}
        return affine(p, "out.", ready), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        scanned, gate, z = saved["scanned"], saved["gate"], saved["z"]
        g = affine_vjp(p, "out.", saved["ready"], gy, params)
        if self.gated_last:
            g_gate, g_scanned = g * saved["normal"], self._norm_vjp(p, saved, g * gate, params)
        else:
            g = self._norm_vjp(p, saved, g, params)
            g_gate, g_scanned = g * scanned, g * gate
        g_z = g_gate * slope("silu", z) * self.multipliers[0]
        heads, _, a, *_ = saved["given"]
        by_head = g_scanned.reshape(heads.shape)
        of = selective_scan_vjp(saved["of"], saved["given"], by_head)
        params["a_log"] = (of.a * a)[:, 0]
        params["d"] = (by_head * heads).sum((0, 1, 3))
        most = np.inf if self.dt_max is None else self.dt_max
        inside = (saved["open_dt"] >= self.dt_min) & (saved["open_dt"] <= most)
        g_pre = of.dt.reshape(inside.shape) * inside * sigmoid(saved["pre"])
        params["dt_bias"] = g_pre.reshape(-1, self.num_heads).sum(0)
        lead = z.shape[:-1]
        g_v = of.x + p["d"][:, None] * by_head
        g_mixed = np.concatenate([part.reshape(*lead, -1) for part in (g_v, of.b, of.c)], axis=-1)
        g_mixed = g_mixed * slope("silu", saved["mixed"])
        factors = self._factors(gy)
        g_w, g_weight = causal_conv_vjp(p["conv.weight"] * factors, saved["rows"], g_mixed, saved["seen"])
        params["conv.weight"] = g_weight * factors
        if self.conv_bias:
            params["conv.bias"] = g_mixed.reshape(-1, sum(self.conv_width)).sum(0)
        g_in = np.concatenate([g_z, g_w, g_pre * self.multipliers[4]], axis=-1)
        return Grads((affine_vjp(p, "in.", saved["x"], g_in, params),), params)

    def _factors(self, like: Array) -> Array:
        """Factors on the weights of the convolution, ``[channels, 1, 1]``: on its input they would be in its state."""
        return np.repeat(np.array(self.multipliers[1:4], like.dtype), self.conv_width)[:, None, None]

    def _normed(self, p: Arrays, x: Array) -> tuple[Array, Saved]:
        if not self.norm:
            return x, {}
        parts = x.reshape(*x.shape[:-1], self.groups, -1)
        y, scale = rms_norm(parts, p["norm.weight"].reshape(self.groups, -1), self.norm_eps)
        return y.reshape(x.shape), {"parts": parts, "scale": scale}

    def _norm_vjp(self, p: Arrays, saved: Saved, g: Array, params: dict[str, Array]) -> Array:
        if not self.norm:
            return g
        parts, scale = saved["parts"], saved["scale"]
        by_group = g.reshape(parts.shape)
        gain = p["norm.weight"].reshape(self.groups, -1)
        gx, _ = rms_norm_vjp(parts, gain, scale, by_group)
        params["norm.weight"] = (by_group * parts * scale).reshape(-1, self.inner).sum(0)
        return gx.reshape(g.shape)

    def _as_heads(self, v: Array, dt: Array, a_log: Array, b: Array, c: Array) -> SelectiveScanInputs:
        """What the scan takes."""
        length = v.shape[-2]
        group = (self.groups, self.state_size)
        shapes = ((self.num_heads, self.head_dim), (self.num_heads,), group, group)
        v, dt, b, c = (part.reshape(-1, length, *shape) for part, shape in zip((v, dt, b, c), shapes, strict=True))
        return SelectiveScanInputs(v, dt, -np.exp(a_log)[:, None], b, c)
