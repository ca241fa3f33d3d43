"""Recurrent cells on the rows of a call, step by step of time, for all its sequences together.

Hidden states stand side by side, one row for each piece, while a call runs: the product with them is one of as many
rows, so its weights are read once for all sequences. `recall` brings the states there, `retain` takes them back;
between the two the walker repeats the product and `cell` for each step of time. Equations: `layers.recurrent`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.maths import sigmoid, tanh
from volumetric.kernels.cpu.memory import load_f32, load_i64, store_f32
from volumetric.kernels.cpu.simd import load, splat, store_first, where_less
from volumetric.kernels.cpu.steps import (
    COUNT_WORD,
    PIECE_WORDS,
    PIECES_WORD,
    STATE_WORDS,
    first_row,
    slot_address,
    slot_stride,
    word,
)

f32 = np.float32

CELLS = ("rnn_tanh", "rnn_relu", "lstm", "gru")
"""Position = the code of a cell."""
_TANH, _RELU, _LSTM, _GRU = range(4)

STATE_ARGUMENTS = ("state", "slot", "size")
"""Number of the state in a piece's state table, slot of the rows beside it, numbers in it."""


@kernel
def lstm(i, f, g, o, c):
    """Gates, c and h after a step of up to 16 units, from pre-activations and c before it."""
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    after = f * c + i * g
    return i, f, g, o, after, o * tanh(after)


@kernel
def gru(r, z, from_x, from_h, h):
    """Gates, the new part and h after a step, from pre-activations (of the new part in its two terms) and h before."""
    r, z = sigmoid(r), sigmoid(z)
    n = tanh(from_x + r * from_h)
    return r, z, n, (splat(f32(1.0)) - z) * n + z * h


@kernel
def piece_address(control, number):
    """Address of piece `number`."""
    return load_i64(control + 8 * PIECES_WORD) + 8 * PIECE_WORDS * number


@kernel
def state_address(control, number, state):
    """Address of a state of piece `number`."""
    return load_i64(load_i64(piece_address(control, number) + 24) + 8 * STATE_WORDS * state)


def recall(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy a state of each piece to the piece's row."""
    for i in range(thread, load_i64(control + 8 * COUNT_WORD), threads):
        source = state_address(control, i, word(step, 0))
        out = slot_address(control, word(step, 1)) + i * slot_stride(control, word(step, 1))
        for j in range(word(step, 2)):
            store_f32(out + 4 * j, load_f32(source + 4 * j))


def retain(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy each piece's row to its state."""
    for i in range(thread, load_i64(control + 8 * COUNT_WORD), threads):
        source = slot_address(control, word(step, 1)) + i * slot_stride(control, word(step, 1))
        out = state_address(control, i, word(step, 0))
        for j in range(word(step, 2)):
            store_f32(out + 4 * j, load_f32(source + 4 * j))


CELL_ARGUMENTS = ("from_x", "from_h", "y", "h", "c", "size")
"""Slots of the pre-activations by row and by piece, the output by row, h and c (lstm) by piece; hidden units."""


def cell(code: int) -> Callable[..., None]:
    """One step of time of cell number `code` of `CELLS`; its number is the first row of the control block."""

    def cell(step: Any, thread: Any, threads: Any, control: Any) -> None:
        size = word(step, 5)
        parts = (size + 15) // 16
        count = load_i64(control + 8 * COUNT_WORD) * parts
        for share in range(count * thread // threads, count * (thread + 1) // threads):
            number = share // parts
            row = load_i64(piece_address(control, number)) + first_row(control)
            if row >= load_i64(piece_address(control, number) + 8):
                continue
            at = share % parts * 64
            x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0)) + at
            h = slot_address(control, word(step, 1)) + number * slot_stride(control, word(step, 1)) + at
            out = slot_address(control, word(step, 2)) + row * slot_stride(control, word(step, 2)) + at
            held = slot_address(control, word(step, 3)) + number * slot_stride(control, word(step, 3)) + at
            block = 4 * size
            lanes = min(size - at // 4, 16)
            if code == _LSTM:
                kept = slot_address(control, word(step, 4)) + number * slot_stride(control, word(step, 4)) + at
                f, g = load(x + block) + load(h + block), load(x + 2 * block) + load(h + 2 * block)
                o = load(x + 3 * block) + load(h + 3 * block)
                _, _, _, _, c, y = lstm(load(x) + load(h), f, g, o, load(kept))
                store_first(kept, c, lanes)
            elif code == _GRU:
                z = load(x + block) + load(h + block)
                _, _, _, y = gru(load(x) + load(h), z, load(x + 2 * block), load(h + 2 * block), load(held))
            elif code == _TANH:
                y = tanh(load(x) + load(h))
            else:
                pre = load(x) + load(h)
                y = where_less(pre, splat(f32(0.0)), splat(f32(0.0)), pre)
            store_first(held, y, lanes)
            store_first(out, y, lanes)

    return cell
