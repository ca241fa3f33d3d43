"""Preparation for attention: angles of the positions, prepared queries, and keys and values written to the cache.

Keys have the layout of weight panels, ``[kv_head, position / 16, head_dim, 16]``, and values are ``[kv_head, position,
width]``, `head_dim` rounded up to 16; `attention` explains why. An int8 cache has a float32 scale for each head of each
position after its codes, ``[kv_head, position]``. Positions count from the cache's first row, a multiple of 16: earlier
rows were freed, because they are outside the window of every later row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import (
    load_f32,
    load_f64,
    load_u8,
    load_u16,
    store_f32,
    store_i8,
    store_i16,
)
from volumetric.devices.cpu.kernels.prepare import (
    LAYER_NORM,
    RMS_NORM,
    code_step,
    inverse_root,
    moments,
    row_sum,
    square_sum,
)
from volumetric.devices.cpu.kernels.simd import (
    as_brain,
    as_half,
    first_lanes,
    larger_size,
    load,
    nearest,
    peak_size,
    splat,
    store,
    store_bytes,
    store_first,
    store_half,
)
from volumetric.devices.cpu.kernels.step_words import (
    first_row,
    first_row_position,
    last_row,
    number,
    row_position,
    scratch,
    slot_address,
    slot_stride,
    state_word,
    word,
)

f32 = np.float32

STORAGE_BYTES = {"float32": 4, "float16": 2, "int8": 1}
"""Storage type of keys and values → bytes of a number."""

ANGLE_ARGUMENTS = ("frequencies", "half", "out", "factor")
"""Address of float64 radians per position, their number, slot of the table ``[rows, 2 · half]``, factor of both."""


def angles(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Cosines, then sines, of the rotary angles of each row, computed in float64."""
    half = word(step, 1)
    rows = last_row(step, control)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        out = slot_address(control, word(step, 2)) + row * half * 8
        for i in range(half):
            turn = load_f64(word(step, 0) + 8 * i) * row_position(step, control, row)
            store_f32(out + 4 * i, number(step, 3) * f32(math.cos(turn)))
            store_f32(out + 4 * (half + i), number(step, 3) * f32(math.sin(turn)))


APPEND_ARGUMENTS = (
    "input",  # slot: q heads, k heads, v heads
    "heads",
    "kv_heads",
    "head_dim",
    "q_norm",  # address of the gain, or 0 = none
    "k_norm",
    "eps",
    "half",  # number of pairs to rotate; 0 = no rotation
    "table",  # slot of angles [rows, 2 · half]
    "state",  # index of the cache
    "queries",  # slot of prepared queries [rows, heads, head_dim]
    "scale",  # of the scores; multiplied into the queries
    "held",  # 1: the cache holds earlier tokens; 0: only this call
    "norm",  # norm of heads: NO_NORM, RMS_NORM, LAYER_NORM
    "gain_stride",  # bytes from the gain of a head to that of the next; 0 = all have the same
    "temperature_scale",  # queries grow by 1 + this · log(1 + ⌊(position + 1) / temperature_every⌋)
    "temperature_every",
)


@kernel
def _ready_head(source, out, size, norm, gain, eps, half, table, scale):
    """Norm, rotate and scale one head of `size` numbers; writes whole vectors, so up to 15 numbers more."""
    factor = splat(scale)
    centre = splat(f32(0.0))
    rest = centre
    if norm == RMS_NORM:
        factor = splat(scale * inverse_root(square_sum(source, size) / f32(size), eps))
    elif norm == LAYER_NORM:
        mean = row_sum(source, size) / f32(size)
        shift, variance = moments(source, size, mean)
        centre, rest = splat(mean), splat(shift)
        factor = splat(scale * inverse_root(variance, eps))
    for i in range(0, size, 16):
        value = load(source + 4 * i)
        if norm == LAYER_NORM:
            value = value - centre - rest
        value = value * factor
        if gain != 0:
            value = value * load(gain + 4 * i)
        store(out + 4 * i, value)
    if half % 16 == 0:
        for i in range(0, half, 16):
            cos = load(table + 4 * i)
            sin = load(table + 4 * (half + i))
            first = load(out + 4 * i)
            second = load(out + 4 * (half + i))
            store(out + 4 * i, first * cos - second * sin)
            store(out + 4 * (half + i), second * cos + first * sin)
    else:
        _rotate_pairs(out, half, table)


@kernel
def _rotate_pairs(out, half, table):
    """Rotate pair by pair, for halves that are no multiple of a vector."""
    for i in range(half):
        cos = load_f32(table + 4 * i)
        sin = load_f32(table + 4 * (half + i))
        first = load_f32(out + 4 * i)
        second = load_f32(out + 4 * (half + i))
        store_f32(out + 4 * i, first * cos - second * sin)
        store_f32(out + 4 * (half + i), second * cos + first * sin)


@kernel
def _copy(source, out, size):
    for i in range(0, size, 16):
        if size - i >= 16:
            store(out + 4 * i, load(source + 4 * i))
        else:
            store_first(out + 4 * i, load(source + 4 * i), size - i)


@kernel
def _head_scale(source, size):
    """Largest magnitude of a head's numbers / 127, NaN if one of them is not finite."""
    zero = splat(f32(0.0))
    top = zero
    for i in range(0, size, 16):
        top = larger_size(top, first_lanes(size - i, load(source + 4 * i), zero))
    return code_step(peak_size(top))


@kernel
def _round_head(source, out, size):
    """Write a head as int8 codes, in whole vectors; `out` may be `source`."""
    scale = _head_scale(source, size)
    inverse = f32(0.0)
    if scale > f32(1e-30):
        inverse = f32(1.0) / scale
    for i in range(0, size, 16):
        value = first_lanes(size - i, load(source + 4 * i), splat(f32(0.0)))
        store_bytes(out + i, nearest(value * splat(inverse)))


@kernel
def _put_key(source, keys, size, capacity, head, place, wide):
    """Scatter one key into its lane of the panel; `source` is rounded in place if `wide` is not 4."""
    panel = keys + ((head * (capacity // 16) + place // 16) * size * 16 + place % 16) * wide
    if wide == 4:
        for i in range(size):
            store_f32(panel + 64 * i, load_f32(source + 4 * i))
    elif wide == 1:
        _round_head(source, source, size)
        for i in range(size):
            store_i8(panel + 16 * i, load_u8(source + i))
    else:
        for i in range(0, size, 16):
            store_half(source + 2 * i, load(source + 4 * i))
        for i in range(size):
            store_i16(panel + 32 * i, load_u16(source + 2 * i))


@kernel
def _put_value(source, values, size, capacity, head, place, wide):
    padded = (size + 15) // 16 * 16
    out = values + (head * capacity + place) * padded * wide
    if wide == 1:
        _round_head(source, out, size)
        return
    for i in range(0, size, 16):
        value = first_lanes(size - i, load(source + 4 * i), splat(f32(0.0)))
        if wide == 4:
            store(out + 4 * i, value)
        else:
            store_half(out + 2 * i, value)


@kernel
def _round(source, out, size, wide):
    """Round a head to bfloat16, in whole vectors; first to float16, if it is stored in `wide` 2 bytes."""
    for i in range(0, size, 16):
        value = load(source + 4 * i)
        if wide == 2:
            value = as_half(value)
        store(out + 4 * i, as_brain(value))


def append(storage: str, rounded: int) -> Callable[..., None]:
    """Prepare queries and write keys and values to a cache of `storage` (a key of `STORAGE_BYTES`).

    `rounded` is 1 to round all of them to bfloat16, see `rounded_attention`.
    """
    wide = STORAGE_BYTES[storage]

    def append(step: Any, thread: Any, threads: Any, control: Any) -> None:
        heads = word(step, 1)
        kv_heads = word(step, 2)
        size = word(step, 3)
        half = word(step, 7)
        norm = word(step, 13)
        state = word(step, 9)
        base = first_row_position(word(step, 12), control) - state_word(control, state, 3)
        first = first_row(control)
        every = heads + 2 * kv_heads
        tasks = (last_row(step, control) - first) * every
        capacity = state_word(control, state, 2)
        room = scratch(control, thread)
        for task in range(tasks * thread // threads, tasks * (thread + 1) // threads):
            row = first + task // every
            head = task % every
            source = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0)) + 4 * size * head
            table = slot_address(control, word(step, 8)) + row * half * 8
            if head < heads:
                gain = word(step, 4) + head * word(step, 14)
                out = slot_address(control, word(step, 10)) + (row * heads + head) * size * 4
                scale = number(step, 11)
                if number(step, 15) != f32(0.0):
                    turn = math.log1p(float((row_position(step, control, row) + 1) // word(step, 16)))
                    scale = scale * (f32(1.0) + number(step, 15) * f32(turn))
                _ready_head(source, room, size, norm, gain, number(step, 6), half, table, scale)
                if rounded:
                    _round(room, room, size, 4)
                _copy(room, out, size)
            elif head < heads + kv_heads:
                gain = word(step, 5) + (head - heads) * word(step, 14)
                _ready_head(source, room, size, norm, gain, number(step, 6), half, table, f32(1.0))
                if rounded:
                    _round(room, room, size, wide)
                keys = state_word(control, state, 0)
                if wide == 1:
                    scales = keys + kv_heads * capacity * size
                    store_f32(scales + 4 * ((head - heads) * capacity + base + row), _head_scale(room, size))
                _put_key(room, keys, size, capacity, head - heads, base + row, wide)
            else:
                values = state_word(control, state, 1)
                if wide == 1:
                    scales = values + kv_heads * capacity * ((size + 15) // 16 * 16)
                    at = (head - heads - kv_heads) * capacity + base + row
                    store_f32(scales + 4 * at, _head_scale(source, size))
                if rounded:
                    _round(source, room, size, wide)
                    source = room
                _put_value(source, values, size, capacity, head - heads - kv_heads, base + row, wide)

    return append
