"""Argmax token of each row of logits, and preparation of the next call: a greedy loop in native code.

Ties and NaN as in ``numpy.argmax``: the first of equals, and the first NaN before every number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i64, store_f32, store_i32, store_i64
from volumetric.devices.cpu.kernels.simd import first_lanes, largest, load, peak, splat, where_nan
from volumetric.devices.cpu.kernels.step_words import (
    PIECES_WORD,
    POSITIONS_WORD,
    SEQUENCE_WORDS,
    STOP_WORD,
    TAIL_POSITIONS_WORD,
    last_row,
    slot_address,
    slot_stride,
    word,
)

f32 = np.float32

MAXIMUM_BYTES = 16
"""Result of a thread for a row: the logit (float32, in 8 bytes) and its index (int64), -1 if it had no share."""

_BLOCK = 256
"""Logits whose maximum is compared at once; the index is then searched within the best block."""


@kernel
def _place_of(x, first, last, value):
    """The first index in [first, last) that holds `value`, or NaN if `value` is NaN; -1 if none does."""
    for i in range(first, last):
        here = load_f32(x + 4 * i)
        if here == value or (np.isnan(here) and np.isnan(value)):
            return i
    return -1


@kernel
def _argmax_between(x, first, last):
    """Index of the largest of the logits [first, last) of a row at `x`, at least one."""
    infinity = splat(f32(math.inf))
    lowest = splat(f32(-math.inf))
    best, block = f32(-math.inf), first
    for start in range(first, last, _BLOCK):
        top = lowest
        for i in range(start, min(start + _BLOCK, last), 16):
            value = first_lanes(last - i, load(x + 4 * i), lowest)
            top = largest(top, where_nan(value, infinity, value))
        here = peak(top)
        if here > best:
            best, block = here, start
    if best == f32(math.inf):  # or NaN
        place = _place_of(x, first, last, f32(math.nan))
        if place >= 0:
            return place
    return _place_of(x, block, min(block + _BLOCK, last), best)


ARGMAX_ARGUMENTS = ("logits", "width", "found")
"""Slot of the logits, numbers in a row, slot of the threads' results, `MAXIMUM_BYTES` for each."""


def argmax_share(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Find the argmax of a share of each row: threads divide the columns."""
    width = word(step, 1)
    vectors = (width + 15) // 16
    first = vectors * thread // threads * 16
    last = min(vectors * (thread + 1) // threads * 16, width)
    for row in range(last_row(step, control)):
        x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
        maxima = slot_address(control, word(step, 2)) + row * slot_stride(control, word(step, 2))
        place = -1
        if last > first:
            place = _argmax_between(x, first, last)
            store_f32(maxima + MAXIMUM_BYTES * thread, load_f32(x + 4 * place))
        store_i64(maxima + MAXIMUM_BYTES * thread + 8, place)


FEED_ARGUMENTS = ("found", "ids", "limit", "tokens")
"""Slots of the threads' results and of the next call's ids; ids below the limit have an embedding; address of the
tokens: the number of calls that have written some, then (token, bits of its logit) for each row of each call."""


def feed_tokens(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Record the token of each row, and prepare the next call of one row for each of the same sequences.

    Stops a repeated call if a token cannot be fed: its logit is not finite, or it is not below the limit.
    """
    if thread != 0:
        return
    rows = last_row(step, control)
    done = load_i64(word(step, 3))
    stop = 0
    for row in range(rows):
        maxima = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
        best, token = f32(-math.inf), -1
        for other in range(threads):
            value = load_f32(maxima + MAXIMUM_BYTES * other)
            place = load_i64(maxima + MAXIMUM_BYTES * other + 8)
            if place >= 0 and (token < 0 or value > best or (np.isnan(value) and not np.isnan(best))):
                best, token = value, place
        record = word(step, 3) + 8 + 16 * (rows * done + row)
        store_i64(record, token)
        store_f32(record + 8, best)
        store_i32(slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1)), token)
        if not (best > f32(-math.inf) and best < f32(math.inf)) or token >= word(step, 2):
            stop = 1
        before = load_i64(control + 8 * PIECES_WORD) + 8 * SEQUENCE_WORDS * row + 16
        store_i64(before, load_i64(before) + 1)
        for list_ in (POSITIONS_WORD, TAIL_POSITIONS_WORD):
            position = load_i64(control + 8 * list_) + 8 * row
            store_i64(position, load_i64(position) + 1)
    store_i64(word(step, 3), done + 1)
    store_i64(control + 8 * STOP_WORD, stop)
