"""In NumPy: a gate in the place of a residual sum, as a GRU has it (Parisotto et al. 2019, GTrXL, arXiv."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Saved, rows
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.layers.scaffolds.gru_gate import _MATRICES


def gru_gate(p: Arrays, name: str, x: Array, f: Array) -> tuple[Array, Saved]:
    """Return ``(1 - z) ⊙ x + z ⊙ ĥ``, and what `gru_gate_vjp` needs.

    ``r = σ(Wr f + Ur x)``, ``z = σ(Wz f + Uz x - b)``, ``ĥ = tanh(Wg f + Ug (r ⊙ x))``.
    """
    wr, ur, wz, uz, wg, ug = (p[f"{name}{matrix}.weight"].T for matrix in _MATRICES)
    r = sigmoid(f @ wr + x @ ur)
    z = sigmoid(f @ wz + x @ uz - p[f"{name}bias"])
    new = np.tanh(f @ wg + (r * x) @ ug)
    return x + z * (new - x), {"x": x, "f": f, "r": r, "z": z, "new": new}


def gru_gate_vjp(p: Arrays, name: str, saved: Saved, gy: Array, out: dict[str, Array]) -> tuple[Array, Array]:
    """Put the gradients of a gate's parameters into `out`; return those of x and f."""
    x, f, r, z, new = (saved[key] for key in ("x", "f", "r", "z", "new"))
    g_new = gy * z * (1 - new * new)
    g_z = gy * (new - x) * z * (1 - z)
    g_mixed = g_new @ p[f"{name}ug.weight"]
    g_r = g_mixed * x * r * (1 - r)
    for gate, of, read in (("r", g_r, x), ("z", g_z, x), ("g", g_new, r * x)):
        out[f"{name}w{gate}.weight"] = rows(of).T @ rows(f)
        out[f"{name}u{gate}.weight"] = rows(of).T @ rows(read)
    out[f"{name}bias"] = -rows(g_z).sum(0)
    gx = gy * (1 - z) + g_mixed * r + g_r @ p[f"{name}ur.weight"] + g_z @ p[f"{name}uz.weight"]
    gf = g_r @ p[f"{name}wr.weight"] + g_z @ p[f"{name}wz.weight"] + g_new @ p[f"{name}wg.weight"]
    return gx, gf
