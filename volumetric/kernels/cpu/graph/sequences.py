"""Rotary embedding and recurrent cells.

A recurrent operation is one step of the table for each step of the sequence; threads share the hidden units and meet
in between, because each unit needs all of the state before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.kernels.cpu.graph.lanes import load_part, store_part, transpose_block, where_at_most
from volumetric.kernels.cpu.graph.shares import share
from volumetric.kernels.cpu.graph.tiles import dot_tile, panel_tile
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.maths import sigmoid, tanh
from volumetric.kernels.cpu.memory import load_f32, store_f32
from volumetric.kernels.cpu.simd import load, splat, store
from volumetric.kernels.cpu.steps import number, scratch, word

f32 = np.float32

CELLS = ("rnn_tanh", "rnn_relu", "lstm", "gru")
"""Position = the code of a cell."""

_RNN_TANH, _RNN_RELU, _LSTM, _GRU = range(len(CELLS))

ROPE_ARGUMENTS = ("x", "cos", "sin", "y", "rows", "length", "heads", "width", "half", "sign")


def rope(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Turn the pairs (i, i + half) of each head; `rows` counts all heads of all positions."""
    length, heads, width, half = word(step, 5), word(step, 6), word(step, 7), word(step, 8)
    sign = splat(number(step, 9))
    for row in range(share(word(step, 4), thread, threads), share(word(step, 4), thread + 1, threads)):
        at = row // heads % length * half
        x = word(step, 0) + 4 * row * width
        y = word(step, 3) + 4 * row * width
        for i in range(0, half, 16):
            left = half - i
            cos = load_part(word(step, 1) + 4 * (at + i), left)
            sin = load_part(word(step, 2) + 4 * (at + i), left) * sign
            a = load_part(x + 4 * i, left)
            b = load_part(x + 4 * (half + i), left)
            store_part(y + 4 * i, a * cos - b * sin, left)
            store_part(y + 4 * (half + i), b * cos + a * sin, left)
        for i in range(2 * half, width, 16):
            store_part(y + 4 * i, load_part(x + 4 * i, width - i), width - i)


PACK_ARGUMENTS = ("weight", "packed", "size")


@kernel
def _group_bytes(size, blocks):
    """Bytes of the packed weights of 16 hidden units."""
    return (size + 15) // 16 * 16 * blocks * 64


def packed_bytes(size: int, blocks: int) -> int:
    """Bytes of all packed weights."""
    return -(-size // 16) * (-(-size // 16) * 16 * blocks * 64)


def recurrent_pack(blocks: int) -> Callable[..., None]:
    """Bring weights ``[blocks · H, H]`` into the order ``[H / 16, k, blocks, 16]``, in which panels read them."""

    def recurrent_pack(step: Any, thread: Any, threads: Any, control: Any) -> None:
        size = word(step, 2)
        groups = (size + 15) // 16
        for group in range(share(groups, thread, threads), share(groups, thread + 1, threads)):
            out = word(step, 1) + group * _group_bytes(size, blocks)
            for block in range(blocks):
                source = word(step, 0) + 4 * size * (block * size + 16 * group)
                for k in range(0, size, 16):
                    here = out + 64 * (k * blocks + block)
                    rows, columns = min(16, size - 16 * group), min(16, size - k)
                    transpose_block(source + 4 * k, 4 * size, rows, columns, here, 64 * blocks)

    return recurrent_pack


STEP_ARGUMENTS = (
    "from_x",
    "weight",
    "bias",
    "h",
    "h_row",
    "c",
    "c_row",
    "y",
    "kept",
    "batch",
    "length",
    "size",
    "at",
    "packed",
)
"""`h` and `c` are the states before step `at`, their rows `h_row` and `c_row` bytes apart; `packed` may be 0 = none."""


@kernel
def _pre_activations(rows, blocks, h, h_row, weight, size, unit, units, room):
    """``room[row, block, lane] = h[row] · weight[block, unit + lane]`` for `units` ≤ 16 lanes."""
    sums = room + 64 * rows * blocks
    for block in range(blocks):
        source = weight + 4 * size * (block * size + unit)
        lane = 0
        while units - lane >= 4:
            dot_tile(rows, 4, h, h_row, source + 4 * size * lane, 4 * size, size, sums)
            for m in range(rows):
                for n in range(4):
                    store_f32(room + 64 * (m * blocks + block) + 4 * (lane + n), load_f32(sums + 4 * (4 * m + n)))
            lane += 4
        while lane < units:
            dot_tile(rows, 1, h, h_row, source + 4 * size * lane, 4 * size, size, sums)
            for m in range(rows):
                store_f32(room + 64 * (m * blocks + block) + 4 * lane, load_f32(sums + 4 * m))
            lane += 1


@kernel
def _with_bias(bias, at, left, value):
    if bias == 0:
        return value
    return value + load_part(bias + 4 * at, left)


@kernel
def _cell(cell, step, row, unit, left, room):
    """State of up to 16 units of one row from their products with the state before."""
    size, length, at = word(step, 11), word(step, 10), word(step, 12)
    blocks = 4 if cell == _LSTM else 3 if cell == _GRU else 1
    x = word(step, 0) + 4 * ((row * length + at) * blocks * size + unit)
    y = word(step, 7) + 4 * ((row * length + at) * size + unit)
    bias = word(step, 2)
    one = splat(f32(1.0))
    p0 = _with_bias(bias, unit, left, load(room))
    x0 = load_part(x, left)
    if cell == _RNN_TANH:
        store_part(y, tanh(x0 + p0), left)
    elif cell == _RNN_RELU:
        zero = splat(f32(0.0))
        store_part(y, where_at_most(x0 + p0, zero, zero, x0 + p0), left)
    elif cell == _LSTM:
        kept = word(step, 8) + 4 * ((row * length + at) * 5 * size + unit)
        i = sigmoid(x0 + p0)
        f = sigmoid(load_part(x + 4 * size, left) + _with_bias(bias, unit + size, left, load(room + 64)))
        g = tanh(load_part(x + 8 * size, left) + _with_bias(bias, unit + 2 * size, left, load(room + 128)))
        o = sigmoid(load_part(x + 12 * size, left) + _with_bias(bias, unit + 3 * size, left, load(room + 192)))
        c = f * load_part(word(step, 5) + row * word(step, 6) + 4 * unit, left) + i * g
        store_part(kept, i, left)
        store_part(kept + 4 * size, f, left)
        store_part(kept + 8 * size, g, left)
        store_part(kept + 12 * size, o, left)
        store_part(kept + 16 * size, c, left)
        store_part(y, o * tanh(c), left)
    else:
        kept = word(step, 8) + 4 * ((row * length + at) * 4 * size + unit)
        h = load_part(word(step, 3) + row * word(step, 4) + 4 * unit, left)
        r = sigmoid(x0 + p0)
        z = sigmoid(load_part(x + 4 * size, left) + _with_bias(bias, unit + size, left, load(room + 64)))
        hn = _with_bias(bias, unit + 2 * size, left, load(room + 128))
        n = tanh(load_part(x + 8 * size, left) + r * hn)
        store_part(kept, r, left)
        store_part(kept + 4 * size, z, left)
        store_part(kept + 8 * size, n, left)
        store_part(kept + 12 * size, hn, left)
        store_part(y, (one - z) * n + z * h, left)


def recurrent_step(cell: int) -> Callable[..., None]:
    """One step of a recurrent layer."""
    blocks = 4 if cell == _LSTM else 3 if cell == _GRU else 1

    def recurrent_step(step: Any, thread: Any, threads: Any, control: Any) -> None:
        batch, size = word(step, 9), word(step, 11)
        h, h_row, weight = word(step, 3), word(step, 4), word(step, 1)
        zeros = scratch(control, thread)
        room = zeros + 64 * blocks
        apart = 64 * blocks
        for block in range(blocks):
            store(zeros + 64 * block, splat(f32(0.0)))
        groups = (size + 15) // 16
        for group in range(share(groups, thread, threads), share(groups, thread + 1, threads)):
            unit = 16 * group
            units = min(16, size - unit)
            panels = word(step, 13)
            if panels != 0:
                panels += group * _group_bytes(size, blocks)
            row = 0
            while batch - row >= 4:
                if panels != 0:
                    panel_tile(4, blocks, h + row * h_row, h_row, 4, panels, apart, size, zeros, 0, room, apart)
                else:
                    _pre_activations(4, blocks, h + row * h_row, h_row, weight, size, unit, units, room)
                for m in range(4):
                    _cell(cell, step, row + m, unit, units, room + 64 * blocks * m)
                row += 4
            while row < batch:
                if panels != 0:
                    panel_tile(1, blocks, h + row * h_row, h_row, 4, panels, apart, size, zeros, 0, room, apart)
                else:
                    _pre_activations(1, blocks, h + row * h_row, h_row, weight, size, unit, units, room)
                _cell(cell, step, row, unit, units, room)
                row += 1

    return recurrent_step


BACK_ARGUMENTS = (
    "gy",
    "y",
    "kept",
    "weight",
    "h",
    "h_row",
    "c",
    "c_row",
    "g_x",
    "g_h",
    "carry",  # [2, B, H]: gradients of h (apart from its products) and c before the step behind
    "batch",
    "length",
    "size",
    "at",
)


@kernel
def _back_products(g, weight, wide, size, left):
    """``Σ_r g[r] weight[r, :]`` of up to 16 columns."""
    zero = splat(f32(0.0))
    s0 = zero
    s1 = zero
    s2 = zero
    s3 = zero
    r = 0
    while wide - r >= 4:
        s0 = s0 + splat(load_f32(g + 4 * r)) * load_part(weight + 4 * size * r, left)
        s1 = s1 + splat(load_f32(g + 4 * r + 4)) * load_part(weight + 4 * size * (r + 1), left)
        s2 = s2 + splat(load_f32(g + 4 * r + 8)) * load_part(weight + 4 * size * (r + 2), left)
        s3 = s3 + splat(load_f32(g + 4 * r + 12)) * load_part(weight + 4 * size * (r + 3), left)
        r += 4
    while r < wide:
        s0 = s0 + splat(load_f32(g + 4 * r)) * load_part(weight + 4 * size * r, left)
        r += 1
    return (s0 + s1) + (s2 + s3)


@kernel
def _gradient_before(cell, step, row, unit, left, products):
    """Gradient of h after the step, from the layer's output, from the step behind, and from its `products`."""
    length, size, at = word(step, 12), word(step, 13), word(step, 14)
    g = load_part(word(step, 0) + 4 * ((row * length + at) * size + unit), left)
    if at + 1 < length:
        g = g + products
        if cell == _GRU:
            g = g + load_part(word(step, 10) + 4 * (row * size + unit), left)
    return g


@kernel
def _cell_back(cell, step, row, unit, left, g):
    """Gradients of up to 16 units of one row; `g` is that of h after the step."""
    size, length, at, batch = word(step, 13), word(step, 12), word(step, 14), word(step, 11)
    blocks = 4 if cell == _LSTM else 3 if cell == _GRU else 1
    place = row * length + at
    g_x = word(step, 8) + 4 * (place * blocks * size + unit)
    carry = word(step, 10) + 4 * (row * size + unit)
    one = splat(f32(1.0))
    if cell == _RNN_TANH:
        y = load_part(word(step, 1) + 4 * (place * size + unit), left)
        store_part(g_x, g * (one - y * y), left)
    elif cell == _RNN_RELU:
        y = load_part(word(step, 1) + 4 * (place * size + unit), left)
        zero = splat(f32(0.0))
        store_part(g_x, where_at_most(y, zero, zero, g), left)
    elif cell == _LSTM:
        kept = word(step, 2) + 4 * (place * 5 * size + unit)
        i = load_part(kept, left)
        f = load_part(kept + 4 * size, left)
        new = load_part(kept + 8 * size, left)
        o = load_part(kept + 12 * size, left)
        bounded = tanh(load_part(kept + 16 * size, left))
        gc = g * o * (one - bounded * bounded)
        if at + 1 < length:
            gc = gc + load_part(carry + 4 * batch * size, left)
        c = load_part(word(step, 6) + row * word(step, 7) + 4 * unit, left)
        store_part(g_x, gc * new * i * (one - i), left)
        store_part(g_x + 4 * size, gc * c * f * (one - f), left)
        store_part(g_x + 8 * size, gc * i * (one - new * new), left)
        store_part(g_x + 12 * size, g * bounded * o * (one - o), left)
        store_part(carry + 4 * batch * size, gc * f, left)
    else:
        kept = word(step, 2) + 4 * (place * 4 * size + unit)
        g_h = word(step, 9) + 4 * (place * 3 * size + unit)
        r = load_part(kept, left)
        z = load_part(kept + 4 * size, left)
        n = load_part(kept + 8 * size, left)
        hn = load_part(kept + 12 * size, left)
        h = load_part(word(step, 4) + row * word(step, 5) + 4 * unit, left)
        g_n = g * (one - z) * (one - n * n)
        g_z = g * (h - n) * z * (one - z)
        g_r = g_n * hn * r * (one - r)
        store_part(g_x, g_r, left)
        store_part(g_x + 4 * size, g_z, left)
        store_part(g_x + 8 * size, g_n, left)
        store_part(g_h, g_r, left)
        store_part(g_h + 4 * size, g_z, left)
        store_part(g_h + 8 * size, g_n * r, left)
        store_part(carry, g * z, left)


def recurrent_back(cell: int) -> Callable[..., None]:
    """Gradients of one step of a recurrent layer, from those of the step behind it."""
    blocks = 4 if cell == _LSTM else 3 if cell == _GRU else 1

    def recurrent_back(step: Any, thread: Any, threads: Any, control: Any) -> None:
        batch, length, size, at = word(step, 11), word(step, 12), word(step, 13), word(step, 14)
        groups = (size + 15) // 16
        wide = blocks * size
        zero = splat(f32(0.0))
        room = scratch(control, thread)
        store(room, zero)
        for group in range(share(groups, thread, threads), share(groups, thread + 1, threads)):
            unit = 16 * group
            left = min(16, size - unit)
            weight = word(step, 3) + 4 * unit
            row = 0
            while row < batch:
                behind = word(step, 9) + 4 * (row * length + at + 1) * wide
                rows = 1
                if left == 16 and batch - row >= 4:
                    rows = 4
                    if at + 1 < length:
                        apart = 4 * length * wide
                        panel_tile(4, 1, behind, apart, 4, weight, 4 * size, wide, room, 0, room + 64, 64)
                elif at + 1 < length:
                    store(room + 64, _back_products(behind, weight, wide, size, left))
                for m in range(rows):
                    products = load(room + 64 + 64 * m)
                    g = _gradient_before(cell, step, row + m, unit, left, products)
                    _cell_back(cell, step, row + m, unit, left, g)
                row += rows

    return recurrent_back
