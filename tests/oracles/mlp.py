"""In NumPy: feed-forward blocks: the gated family (SwiGLU, GeGLU, …; Shazeer 2020, arXiv 2002.05202) and the."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.layers.mlp import MLP, SwiGLU


@oracle_of(SwiGLU)
class SwiGLUOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        gate, up = affine(p, "gate.", xs[0]) * xs[0].dtype.type(self.gate_factor), affine(p, "up.", xs[0])
        saved: Saved = {"x": xs[0]}
        if self.limit is not None:
            limit = gate.dtype.type(self.limit)
            saved |= {"open": gate <= limit, "free": np.abs(up) <= limit}
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit) + gate.dtype.type(self.up_offset)
        opened = activate(self.activation, gate)
        hidden = opened * up
        saved |= {"gate": gate, "up": up, "opened": opened, "hidden": hidden}
        return affine(p, "down.", hidden), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_hidden = affine_vjp(p, "down.", saved["hidden"], gy, params)
        g_gate = g_hidden * saved["up"] * slope(self.activation, saved["gate"]) * gy.dtype.type(self.gate_factor)
        g_up = g_hidden * saved["opened"]
        if self.limit is not None:
            g_gate, g_up = g_gate * saved["open"], g_up * saved["free"]
        gx = affine_vjp(p, "gate.", saved["x"], g_gate, params)
        gx = gx + affine_vjp(p, "up.", saved["x"], g_up, params)
        return Grads((gx,), params)


@oracle_of(MLP)
class MLPOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        up = affine(p, "up.", xs[0])
        hidden = activate(self.activation, up)
        return affine(p, "down.", hidden), {"x": xs[0], "up": up, "hidden": hidden}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_up = affine_vjp(p, "down.", saved["hidden"], gy, params) * slope(self.activation, saved["up"])
        return Grads((affine_vjp(p, "up.", saved["x"], g_up, params),), params)
