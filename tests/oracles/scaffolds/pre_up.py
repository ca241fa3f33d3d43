"""In NumPy: preUp: a core on widened rows, with a gated path beside it (Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Saved, oracle, oracle_of, rows
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.scaffolds.base import RunCore, WidenedOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.layers.scaffolds.pre_up import PreUp


@oracle_of(PreUp)
class PreUpOracle(WidenedOracle):
    def around(self, p: Arrays, x: Array, core: RunCore) -> tuple[Array, Saved]:
        normal = oracle(self.norm).forward({"weight": p["norm.weight"]}, x)
        a, z = np.split(affine(p, "in.", normal[0]), 2, axis=-1)
        beside, open_z = activate("silu", a), activate("silu", z)
        made, inner = core(beside if self.activates else a)
        whole = made + p["skip"] * beside
        y, joint = self.join(p, "gate.", x, affine(p, "out.", whole * open_z))
        kept = {"normal": normal, "a": a, "z": z, "beside": beside, "open": open_z, "whole": whole}
        return y, {**kept, "core": inner, "joint": joint}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        a, beside, open_z, whole = (saved[name] for name in ("a", "beside", "open", "whole"))
        gx, g = self.join_vjp(p, "gate.", saved["joint"], gy, params)
        g = affine_vjp(p, "out.", whole * open_z, g, params)
        g_whole, g_z = g * open_z, g * whole * slope("silu", saved["z"])
        params["skip"] = rows(g_whole * beside).sum(0)
        g_beside, g_core = g_whole * p["skip"], self.core_vjp(p, saved["core"], g_whole, params)
        if self.activates:
            g_a = (g_beside + g_core) * slope("silu", a)
        else:
            g_a = g_beside * slope("silu", a) + g_core
        y, normal = saved["normal"]
        g = affine_vjp(p, "in.", y, np.concatenate([g_a, g_z], axis=-1), params)
        norm = oracle(self.norm).vjp({"weight": p["norm.weight"]}, normal, g)
        params["norm.weight"] = norm.params["weight"]
        through = norm.inputs[0]
        assert through is not None
        return Grads((gx + through,), params)
