"""The cell of an sLSTM: exponential gates over a running maximum (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.graph.numeric.recurrent_cell import Cell, States

EPS = 1e-6
"""Is added to the normaliser."""


def log_sigmoid(x: Array) -> Array:
    """``log σ(x)``, which neither overflows nor loses small values."""
    return -np.logaddexp(x.dtype.type(0), -x)


def _step(from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
    _, c, n, m = before
    i, f, z, o = np.split(from_x + from_h, 4, axis=-1)
    passed = m + log_sigmoid(f)
    most = np.where(n == 0, i, np.maximum(i, passed))
    open_i, open_f = np.exp(i - most), np.exp(np.minimum(passed - most, 0))
    z, o, kept = np.tanh(z), sigmoid(o), sigmoid(f)
    c = open_f * c + open_i * z
    n = open_f * n + open_i
    return (o * c / (n + c.dtype.type(EPS)), c, n, most), (open_i, open_f, z, o, kept)


def _back(kept: States, before: States, after: States, g: States) -> tuple[Array, Array, States]:
    i, f, z, o, s = kept
    _, c0, n0, m0 = before
    _, c, n, _ = after
    gy, gc, gn, gm = g
    whole = n + c.dtype.type(EPS)
    gc, gn = gc + gy * o / whole, gn - gy * o * c / (whole * whole)
    by_i, by_f = (gc * z + gn) * i, (gc * c0 + gn * n0) * f
    fresh = n0 == 0
    with np.errstate(divide="ignore"):  # log 0 is -inf, and passes nothing
        passed = m0 + np.log(s)
    by_f = np.where(fresh & (passed > after[3]), 0, by_f)
    rest = gm - by_i - by_f
    to_i = fresh | (i == 1)  # of equals, the gate i gave the largest
    g_i, g_passed = by_i + np.where(to_i, rest, 0), by_f + np.where(to_i, 0, rest)
    g_pre = [g_i, g_passed * (1 - s), gc * i * (1 - z * z), gy * c / whole * o * (1 - o)]
    pre = np.concatenate(g_pre, axis=-1)
    return pre, pre, (gc * f, gn * f, g_passed)


CELL = Cell(
    name="slstm",
    blocks=4,
    states=("y", "c", "n", "m"),
    keeps=("i", "f", "z", "o", "s"),
    direct=("c", "n", "m"),
    step=_step,
    back=_back,
)
"""One step from pre-activations, gates i, f, z, o side by side."""
