"""Recurrent cells: up to 16 hidden units of one row, a step forward and back. `layers.recurrent` has the equations.

A cell is a number, its place in `CELLS`, that is known when a kernel is compiled. The blocks of a row lie ``4 * size``
bytes apart.
"""

from __future__ import annotations

import numpy as np

from volumetric.kernels.cpu.cells import CELLS, gru, lstm
from volumetric.kernels.cpu.graph.lanes import load_part, store_part, where_at_most
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.maths import tanh
from volumetric.kernels.cpu.simd import load, splat

f32 = np.float32

_RNN_TANH, _RNN_RELU, _LSTM, _GRU = range(len(CELLS))


@kernel
def _from_h(room, bias, block, size, left):
    """Pre-activations of a block from the state before."""
    value = load(room + 64 * block)
    if bias == 0:
        return value
    return value + load_part(bias + 4 * block * size, left)


@kernel
def forward(cell, x, room, bias, h, c, y, kept, size, left):
    """One step.

    Everything is an address, of the units of one row: ``x`` pre-activations from the layer's input, ``room`` products
    of ``h``, 64 bytes a block; ``bias`` (0: none); ``h`` and ``c`` the states before; ``y`` and ``kept`` for results.
    """
    p0 = _from_h(room, bias, 0, size, left)
    x0 = load_part(x, left)
    if cell == _RNN_TANH:
        store_part(y, tanh(x0 + p0), left)
    elif cell == _RNN_RELU:
        zero = splat(f32(0.0))
        store_part(y, where_at_most(x0 + p0, zero, zero, x0 + p0), left)
    elif cell == _LSTM:
        f = load_part(x + 4 * size, left) + _from_h(room, bias, 1, size, left)
        g = load_part(x + 8 * size, left) + _from_h(room, bias, 2, size, left)
        o = load_part(x + 12 * size, left) + _from_h(room, bias, 3, size, left)
        i, f, g, o, after, state = lstm(x0 + p0, f, g, o, load_part(c, left))
        store_part(kept, i, left)
        store_part(kept + 4 * size, f, left)
        store_part(kept + 8 * size, g, left)
        store_part(kept + 12 * size, o, left)
        store_part(kept + 16 * size, after, left)
        store_part(y, state, left)
    else:
        z = load_part(x + 4 * size, left) + _from_h(room, bias, 1, size, left)
        hn = _from_h(room, bias, 2, size, left)
        r, z, n, state = gru(x0 + p0, z, load_part(x + 8 * size, left), hn, load_part(h, left))
        store_part(kept, r, left)
        store_part(kept + 4 * size, z, left)
        store_part(kept + 8 * size, n, left)
        store_part(kept + 12 * size, hn, left)
        store_part(y, state, left)


@kernel
def backward(cell, g, arrived, y, kept, h, c, g_x, g_h, carry, size, left):
    """One step back.

    ``g`` is the gradient of h after the step, apart from what lies at ``arrived`` (0: nothing), which is of c for an
    lstm; the rest are addresses as in `forward`. ``g_h`` is written only where it differs from ``g_x``. ``carry`` gets
    the gradient of a state before the step that does not go through products: of c (lstm), of h (gru).
    """
    one = splat(f32(1.0))
    if cell == _RNN_TANH:
        after = load_part(y, left)
        store_part(g_x, g * (one - after * after), left)
    elif cell == _RNN_RELU:
        zero = splat(f32(0.0))
        store_part(g_x, where_at_most(load_part(y, left), zero, zero, g), left)
    elif cell == _LSTM:
        i = load_part(kept, left)
        f = load_part(kept + 4 * size, left)
        new = load_part(kept + 8 * size, left)
        o = load_part(kept + 12 * size, left)
        bounded = tanh(load_part(kept + 16 * size, left))
        gc = g * o * (one - bounded * bounded)
        if arrived != 0:
            gc = gc + load_part(arrived, left)
        store_part(g_x, gc * new * i * (one - i), left)
        store_part(g_x + 4 * size, gc * load_part(c, left) * f * (one - f), left)
        store_part(g_x + 8 * size, gc * i * (one - new * new), left)
        store_part(g_x + 12 * size, g * bounded * o * (one - o), left)
        store_part(carry, gc * f, left)
    else:
        if arrived != 0:
            g = g + load_part(arrived, left)
        r = load_part(kept, left)
        z = load_part(kept + 4 * size, left)
        n = load_part(kept + 8 * size, left)
        hn = load_part(kept + 12 * size, left)
        g_n = g * (one - z) * (one - n * n)
        g_z = g * (load_part(h, left) - n) * z * (one - z)
        g_r = g_n * hn * r * (one - r)
        store_part(g_x, g_r, left)
        store_part(g_x + 4 * size, g_z, left)
        store_part(g_x + 8 * size, g_n, left)
        store_part(g_h, g_r, left)
        store_part(g_h + 4 * size, g_z, left)
        store_part(g_h + 8 * size, g_n * r, left)
        store_part(carry, g * z, left)
