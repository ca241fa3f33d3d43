"""The cells of recurrent layers by name: one step, and the way back through it, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from volumetric._typing import Array
from volumetric.graph.numeric.activations import activate, sigmoid
from volumetric.graph.numeric.recurrent_cell import Cell, States
from volumetric.graph.numeric.slstm_cell import CELL as SLSTM_CELL


def _tanh(from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
    return (activate("tanh", from_x + from_h),), ()


def _tanh_back(kept: States, before: States, after: States, g: States) -> tuple[Array, Array, States]:
    g_pre = g[0] * (1 - np.square(after[0]))
    return g_pre, g_pre, ()


def _relu(from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
    return (activate("relu", from_x + from_h),), ()


def _relu_back(kept: States, before: States, after: States, g: States) -> tuple[Array, Array, States]:
    g_pre = g[0] * (after[0] > 0)
    return g_pre, g_pre, ()


def _lstm(from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
    i, f, g, o = np.split(from_x + from_h, 4, axis=-1)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    c = f * before[1] + i * g
    return (o * np.tanh(c), c), (i, f, g, o)


def _lstm_back(kept: States, before: States, after: States, g: States) -> tuple[Array, Array, States]:
    i, f, new, o = kept
    gh, gc = g
    bounded = np.tanh(after[1])
    gc = gc + gh * o * (1 - bounded * bounded)
    g_i = gc * new * i * (1 - i)
    g_f = gc * before[1] * f * (1 - f)
    g_new = gc * i * (1 - new * new)
    g_o = gh * bounded * o * (1 - o)
    g_pre = np.concatenate([g_i, g_f, g_new, g_o], axis=-1)
    return g_pre, g_pre, (gc * f,)


def _gru(from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
    xr, xz, xn = np.split(from_x, 3, axis=-1)
    hr, hz, hn = np.split(from_h, 3, axis=-1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = np.tanh(xn + r * hn)
    return ((1 - z) * n + z * before[0],), (r, z, n, hn)


def _gru_back(kept: States, before: States, after: States, g: States) -> tuple[Array, Array, States]:
    r, z, n, hn = kept
    g_n = g[0] * (1 - z) * (1 - n * n)
    g_z = g[0] * (before[0] - n) * z * (1 - z)
    g_r = g_n * hn * r * (1 - r)
    g_x = np.concatenate([g_r, g_z, g_n], axis=-1)
    g_h = np.concatenate([g_r, g_z, g_n * r], axis=-1)
    return g_x, g_h, (g[0] * z,)


CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        cell.name: cell
        for cell in (
            Cell(name="rnn_tanh", blocks=1, step=_tanh, back=_tanh_back),
            Cell(name="rnn_relu", blocks=1, step=_relu, back=_relu_back),
            Cell(
                name="lstm",
                blocks=4,
                states=("h", "c"),
                keeps=("i", "f", "g", "o"),
                direct=("c",),
                step=_lstm,
                back=_lstm_back,
            ),
            Cell(
                name="gru", blocks=3, keeps=("r", "z", "n", "hn"), direct=("h",), apart=True, step=_gru, back=_gru_back
            ),
            SLSTM_CELL,
        )
    }
)
"""Name → cell: its one definition in NumPy. Kernels name their cells alike."""
