"""Attention over the cache filled by `append`.

The key cache has the layout of weight panels, ``[kv_head, position / 16, head_dim, 16]``: scores of 16 positions need
no sum across lanes, and the float tile computes them. Values are ``[kv_head, position, head_dim rounded up to 16]``:
the same tile reads them with positions as k. Every head of every row is computed by one thread over all its positions
in order, so results do not depend on the number of threads.

With an int8 cache the tiles read only codes: scores are multiplied by the keys' scales before the softmax, weights by
the values' after it.

At 1000 tokens SmolLM2-135M reads 46 MB of float32 keys and values a token, 23 MB of float16, 12 MB of int8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.maths import exp, tanh
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.panel_microkernels import float_tiles
from volumetric.devices.cpu.kernels.rope_kv_append import STORAGE_BYTES
from volumetric.devices.cpu.kernels.simd import (
    as_brain,
    first_lanes,
    largest,
    load,
    peak,
    splat,
    store,
    store_brain,
    store_first,
    total,
)
from volumetric.devices.cpu.kernels.step_words import (
    first_row,
    first_row_position,
    last_row,
    number,
    scratch,
    slot_address,
    slot_stride,
    state_word,
    word,
)

f32 = np.float32

ATTEND_ARGUMENTS = (
    "output",  # slot
    "heads",
    "kv_heads",
    "head_dim",
    "causal",
    "window",  # 0 = none
    "softcap",  # 0 = none
    "state",
    "queries",
    "held",
    "chunk",  # 0 = none
    "sinks",  # address of a logit for each head, or 0
)


@kernel
def seen_from(step, own):
    """First position visible to the row at position `own`."""
    window = word(step, 5)
    first = max(own + 1 - window, 0) if window != 0 else 0
    chunk = word(step, 10)
    return max(own // chunk * chunk, first) if chunk != 0 else first


@kernel
def seen_until(step, own, end):
    """One past the last position before `end` visible to the row at position `own`: a window counts both ways."""
    if word(step, 4) != 0:
        return min(own + 1, end)
    window = word(step, 5)
    return min(own + window, end) if window != 0 else end


AS_FLOAT, AS_BRAIN, ROUNDED = range(3)
"""Storage of softmax weights: float32, bfloat16, or float32 rounded to bfloat16."""


@kernel
def _put_weights(scores, i, value, form):
    if form == AS_BRAIN:
        store_brain(scores + 2 * i, value)
    elif form == ROUNDED:
        store(scores + 4 * i, as_brain(value))
    else:
        store(scores + 4 * i, value)


@kernel
def sink_of(step, head):
    """Logit that joins the softmax of a head without a value; -inf if there is none."""
    address = word(step, 11)
    return load_f32(address + 4 * head) if address != 0 else f32(-math.inf)


@kernel
def softmax_row(scores, first, last, until, softcap, sink, form):
    """Turn scores of positions into ``e**(s - max)``: those in [first, last) count, the rest of [0, until) become 0.

    Returns the sum, including the `sink` unless it is -inf. `first`, `last`, `until` count from the scores' start;
    `until` is a multiple of 16. Weights replace the scores, in one of the storage forms above; they are rounded after
    being summed.
    """
    lowest = splat(f32(-math.inf))
    zero = splat(f32(0.0))
    top = lowest
    start = first // 16 * 16
    for i in range(start, last, 16):
        value = load(scores + 4 * i)
        at_end = first > i or last - i < 16
        if softcap != 0:
            value = splat(softcap) * tanh(value / splat(softcap))
        if at_end:
            value = first_lanes(first - i, lowest, first_lanes(last - i, value, lowest))
        if at_end or softcap != 0:
            store(scores + 4 * i, value)
        top = largest(top, value)
    largest_score = peak(top)
    if sink != f32(-math.inf):
        largest_score = max(largest_score, sink)
    highest = splat(max(largest_score, f32(-3.4028234663852886e38)))  # all scores are -inf: the weights are 0, not NaN
    sums = zero
    for i in range(0, start, 16):
        _put_weights(scores, i, zero, form)
    for i in range(start, last, 16):
        value = exp(load(scores + 4 * i) - highest)
        _put_weights(scores, i, value, form)
        sums += value
    for i in range((last + 15) // 16 * 16, until, 16):
        _put_weights(scores, i, zero, form)
    if sink != f32(-math.inf):
        sums += first_lanes(1, exp(splat(sink) - highest), zero)
    return total(sums)


@kernel
def _scale_columns(rows, scores, stride, scales, count):
    """Multiply `count` columns of each row by their scale."""
    for i in range(0, count, 16):
        factor = load(scales + 4 * i)
        for m in range(rows):
            store(scores + m * stride + 4 * i, load(scores + m * stride + 4 * i) * factor)


@kernel
def store_mixed(step, control, room, row, head, valid, by_row):
    """Divide the weighted values of `valid` queries by their sums and store them; `room` as in `_attend_tile`."""
    size = word(step, 3)
    padded = (size + 15) // 16 * 16
    mixed = room + 64
    output = word(step, 0)
    for m in range(valid):
        weights = load_f32(room + 4 * m)
        factor = splat(f32(0.0) if weights == 0 else f32(1.0) / weights)
        out = slot_address(control, output) + (row + m * by_row) * slot_stride(control, output)
        out += 4 * size * (head + m * (1 - by_row))
        for i in range(0, size, 16):
            value = load(mixed + 4 * (m * padded + i)) * factor
            if size - i >= 16:
                store(out + 4 * i, value)
            else:
                store_first(out + 4 * i, value, size - i)


@kernel
def _attend_tile(storage, size_of, form, rows, wide, step, control, room, row, head, x_stride, by_row, valid, until):
    """Attention of `rows` queries over one key/value head: consecutive rows of a head, or heads of a row.

    `by_row` is 1 in the first case. Positions from `until` on are ignored; results of the first `valid` queries are
    stored. `room` has space for their sums, their weighted values, and their scores.
    """
    size = word(step, 3)
    padded = (size + 15) // 16 * 16
    state = word(step, 7)
    capacity = state_word(control, state, 2)
    kv_head = head // (word(step, 1) // word(step, 2))
    keys = state_word(control, state, 0) + kv_head * capacity * size * size_of
    values = state_word(control, state, 1) + kv_head * capacity * padded * size_of
    place = row + first_row_position(word(step, 9), control)
    low = seen_from(step, place) // 16 * 16
    start = low - state_word(control, state, 3)  # row of the cache
    panels = (until - low + 15) // 16
    mixed = room + 64
    scores = mixed + rows * padded * 4
    stride = panels * 64
    x = slot_address(control, word(step, 8)) + (row * word(step, 1) + head) * size * 4
    k_stride = 16 * size_of
    float_tiles(
        storage,
        rows,
        wide,
        keys + start * size * size_of,
        k_stride,
        k_stride * size,
        panels,
        x,
        x_stride,
        size,
        scores,
        stride,
    )
    if size_of == 1:
        scales = state_word(control, state, 0) + word(step, 2) * capacity * size + 4 * (kv_head * capacity + start)
        _scale_columns(rows, scores, stride, scales, 16 * panels)
    for m in range(rows):
        own = place + m * by_row
        last = seen_until(step, own, until)
        first = min(seen_from(step, own), last - 1) - low
        sink = sink_of(step, head + m * (1 - by_row))
        sums = softmax_row(scores + m * stride, first, last - low, 16 * panels, number(step, 6), sink, form)
        store_f32(room + 4 * m, sums)
    if size_of == 1:
        scales = state_word(control, state, 1) + word(step, 2) * capacity * padded + 4 * (kv_head * capacity + start)
        _scale_columns(rows, scores, stride, scales, 16 * panels)
    source = values + start * padded * size_of
    float_tiles(
        storage,
        rows,
        wide,
        source,
        padded * size_of,
        k_stride,
        padded // 16,
        scores,
        stride,
        until - low,
        mixed,
        4 * padded,
    )
    store_mixed(step, control, room, row, head, valid, by_row)


def attend(storage: str, rows: int, wide: int) -> Callable[..., None]:
    """Attention of many rows over the cache, in tiles of `rows` rows × `wide` panels.

    Scratch: `rows` rows of scores, of weighted values, and their sums.
    """
    size_of = STORAGE_BYTES[storage]

    def attend(step: Any, thread: Any, threads: Any, control: Any) -> None:
        heads = word(step, 1)
        origin = first_row_position(word(step, 9), control)
        start = first_row(control)
        end = last_row(step, control)
        tiles = (end - start + rows - 1) // rows
        for item in range(thread, tiles * heads, threads):
            # Later rows see more positions: the longest items first, distributed round-robin.
            row = start + (tiles - 1 - item // heads) * rows
            until = seen_until(step, origin + min(row + rows, end) - 1, origin + end)
            x_stride = heads * word(step, 3) * 4
            valid = min(rows, end - row)
            room = scratch(control, thread)
            _attend_tile(
                storage,
                size_of,
                AS_FLOAT,
                rows,
                wide,
                step,
                control,
                room,
                row,
                item % heads,
                x_stride,
                1,
                valid,
                until,
            )

    return attend


def attend_few(storage: str, rounded: int, together: int, wide: int) -> Callable[..., None]:
    """Attention of few rows: `together` heads that share a key/value head read it once. Scratch as `attend`.

    `rounded` is 1 for the bits of `attend_rounded`, 0 for those of `attend`.
    """
    size_of = STORAGE_BYTES[storage]
    order = storage + ":pairs" if rounded else storage
    form = ROUNDED if rounded else AS_FLOAT

    def attend_few(step: Any, thread: Any, threads: Any, control: Any) -> None:
        parts = word(step, 1) // together
        origin = first_row_position(word(step, 9), control)
        start = first_row(control)
        end = last_row(step, control)
        tasks = (end - start) * parts
        for task in range(tasks * thread // threads, tasks * (thread + 1) // threads):
            row = start + task // parts
            head = task % parts * together
            until = seen_until(step, origin + row, origin + end)
            stride = word(step, 3) * 4
            room = scratch(control, thread)
            _attend_tile(
                order, size_of, form, together, wide, step, control, room, row, head, stride, 0, together, until
            )

    return attend_few


def heads_together(heads: int, kv_heads: int, most: int) -> int:
    """Number of heads that `attend_few` processes at once: the largest divisor of the group that fits a tile."""
    group = heads // kv_heads
    return max(n for n in range(1, min(group, most) + 1) if group % n == 0)
