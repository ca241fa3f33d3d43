"""Recurrent cells: up to 16 hidden units of one row, a step forward and back. `layers.recurrent` has the equations.

A cell is a number, its place in `CODES`, that is known when a kernel is compiled. The blocks of a row lie ``4 * size``
bytes apart.
"""

from __future__ import annotations

import numpy as np

from volumetric.kernels.cpu.cells import CELLS, gru, lstm
from volumetric.kernels.cpu.graph.lanes import load_part, store_part, where_at_most, where_equal
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.maths import exp, sigmoid, softplus, tanh
from volumetric.kernels.cpu.simd import largest, smallest, splat, where_nan

f32 = np.float32

CODES = (*CELLS, "slstm")
"""Position = the code of a cell."""
_RNN_TANH, _RNN_RELU, _LSTM, _GRU, _SLSTM = range(len(CODES))
_EPS = f32(1e-6)


def keeps(cell: int) -> int:
    """Numbers of a unit that `forward` keeps beside the states, of cell number `cell`."""
    return {_LSTM: 4, _GRU: 4, _SLSTM: 5}.get(cell, 0)


@kernel
def _from_h(room, apart, bias, block, size, left):
    """Pre-activations of a block from the state before."""
    value = load_part(room + apart * block, left)
    if bias == 0:
        return value
    return value + load_part(bias + 4 * block * size, left)


@kernel
def _from_x(x, offset, block, size, left):
    """Pre-activations of a block from the input."""
    value = load_part(x + 4 * block * size, left)
    if offset == 0:
        return value
    return value + load_part(offset + 4 * block * size, left)


@kernel
def forward(cell, x, offset, room, apart, bias, h, c, c_step, y, kept, after, after_step, size, left):
    """One step.

    Everything is an address, of the units of one row: ``x`` pre-activations from the layer's input, ``room`` products
    of ``h``, ``apart`` bytes from block to block, ``offset`` and ``bias`` what is added to these (0: nothing); ``h``
    and ``c`` the states before, of which those behind the second lie ``c_step`` bytes apart; for results ``y``,
    ``kept`` (0: nobody wants it), and ``after`` for the states behind the first, ``after_step`` bytes apart.
    """
    p0 = _from_h(room, apart, bias, 0, size, left)
    x0 = _from_x(x, offset, 0, size, left)
    if cell == _RNN_TANH:
        store_part(y, tanh(x0 + p0), left)
    elif cell == _RNN_RELU:
        zero = splat(f32(0.0))
        store_part(y, where_at_most(x0 + p0, zero, zero, x0 + p0), left)
    elif cell == _LSTM:
        f = _from_x(x, offset, 1, size, left) + _from_h(room, apart, bias, 1, size, left)
        g = _from_x(x, offset, 2, size, left) + _from_h(room, apart, bias, 2, size, left)
        o = _from_x(x, offset, 3, size, left) + _from_h(room, apart, bias, 3, size, left)
        i, f, g, o, memory, state = lstm(x0 + p0, f, g, o, load_part(c, left))
        if kept != 0:
            store_part(kept, i, left)
            store_part(kept + 4 * size, f, left)
            store_part(kept + 8 * size, g, left)
            store_part(kept + 12 * size, o, left)
        store_part(after, memory, left)
        store_part(y, state, left)
    elif cell == _SLSTM:
        f = _from_x(x, offset, 1, size, left) + _from_h(room, apart, bias, 1, size, left)
        z = _from_x(x, offset, 2, size, left) + _from_h(room, apart, bias, 2, size, left)
        o = _from_x(x, offset, 3, size, left) + _from_h(room, apart, bias, 3, size, left)
        _slstm(x0 + p0, f, tanh(z), sigmoid(o), c, c_step, y, kept, after, after_step, size, left)
    else:
        z = _from_x(x, offset, 1, size, left) + _from_h(room, apart, bias, 1, size, left)
        hn = _from_h(room, apart, bias, 2, size, left)
        r, z, n, state = gru(x0 + p0, z, _from_x(x, offset, 2, size, left), hn, load_part(h, left))
        if kept != 0:
            store_part(kept, r, left)
            store_part(kept + 4 * size, z, left)
            store_part(kept + 8 * size, n, left)
            store_part(kept + 12 * size, hn, left)
        store_part(y, state, left)


@kernel
def _slstm(i, f, z, o, c, c_step, y, kept, after, after_step, size, left):
    """Exponential gates over the largest so far, which is kept as its logarithm m."""
    zero = splat(f32(0.0))
    before = load_part(c + c_step, left)
    passed = load_part(c + 2 * c_step, left) - softplus(zero - f)
    most = where_equal(before, zero, i, largest(i, passed))
    behind = passed - most
    open_i = exp(i - most)
    open_f = exp(where_nan(behind, behind, smallest(behind, zero)))  # the smaller of NaN and 0 may be 0
    memory = open_f * load_part(c, left) + open_i * z
    whole = open_f * before + open_i
    if kept != 0:
        store_part(kept, open_i, left)
        store_part(kept + 4 * size, open_f, left)
        store_part(kept + 8 * size, z, left)
        store_part(kept + 12 * size, o, left)
        store_part(kept + 16 * size, sigmoid(f), left)
    store_part(after, memory, left)
    store_part(after + after_step, whole, left)
    store_part(after + 2 * after_step, most, left)
    store_part(y, o * memory / (whole + splat(_EPS)), left)


@kernel
def _slstm_back(g, arrived, far, kept, after, after_step, c, c_step, g_x, carry, size, left):
    """As `layers.slstm_cell`, of which "below the gate i" is seen by a gate f of 1: both have that exponent."""
    zero = splat(f32(0.0))
    one = splat(f32(1.0))
    gc = zero
    gn = zero
    gm = zero
    if arrived != 0:
        gc = load_part(arrived, left)
        gn = load_part(arrived + far, left)
        gm = load_part(arrived + 2 * far, left)
    i = load_part(kept, left)
    f = load_part(kept + 4 * size, left)
    z = load_part(kept + 8 * size, left)
    o = load_part(kept + 12 * size, left)
    memory = load_part(after, left)
    before = load_part(c + c_step, left)
    inverse = one / (load_part(after + after_step, left) + splat(_EPS))
    along = g * inverse
    gc = gc + along * o
    gn = gn - along * o * memory * inverse
    by_i = (gc * z + gn) * i
    by_f = (gc * load_part(c, left) + gn * before) * f
    by_f = where_equal(before, zero, where_equal(f, one, zero, by_f), by_f)
    rest = gm - by_i - by_f
    to_i = where_equal(before, zero, rest, where_equal(i, one, rest, zero))
    to_f = by_f + where_equal(before, zero, zero, where_equal(i, one, zero, rest))
    store_part(g_x, by_i + to_i, left)
    store_part(g_x + 4 * size, to_f * (one - load_part(kept + 16 * size, left)), left)
    store_part(g_x + 8 * size, gc * i * (one - z * z), left)
    store_part(g_x + 12 * size, along * memory * o * (one - o), left)
    store_part(carry, gc * f, left)
    store_part(carry + far, gn * f, left)
    store_part(carry + 2 * far, to_f, left)


@kernel
def backward(cell, g, arrived, far, y, kept, after, after_step, h, c, c_step, g_x, g_h, carry, size, left):
    """One step back.

    ``g`` is the gradient of h after the step, apart from what lies at ``arrived`` (0: nothing), which is of c for an
    lstm; the rest are addresses as in `forward`. ``g_h`` is written only where it differs from ``g_x``. ``carry`` gets
    the gradient of a state before the step that does not go through products: of c (lstm), of h (gru); of c, n and m
    (slstm), which there and at ``arrived`` lie ``far`` bytes apart.
    """
    one = splat(f32(1.0))
    if cell == _RNN_TANH:
        state = load_part(y, left)
        store_part(g_x, g * (one - state * state), left)
    elif cell == _RNN_RELU:
        zero = splat(f32(0.0))
        store_part(g_x, where_at_most(load_part(y, left), zero, zero, g), left)
    elif cell == _LSTM:
        i = load_part(kept, left)
        f = load_part(kept + 4 * size, left)
        new = load_part(kept + 8 * size, left)
        o = load_part(kept + 12 * size, left)
        bounded = tanh(load_part(after, left))
        gc = g * o * (one - bounded * bounded)
        if arrived != 0:
            gc = gc + load_part(arrived, left)
        store_part(g_x, gc * new * i * (one - i), left)
        store_part(g_x + 4 * size, gc * load_part(c, left) * f * (one - f), left)
        store_part(g_x + 8 * size, gc * i * (one - new * new), left)
        store_part(g_x + 12 * size, g * bounded * o * (one - o), left)
        store_part(carry, gc * f, left)
    elif cell == _SLSTM:
        _slstm_back(g, arrived, far, kept, after, after_step, c, c_step, g_x, carry, size, left)
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
