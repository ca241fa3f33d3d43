"""Rows of each expert: pairs of a row and one of its experts, in the order of experts, then of rows.

A pair is a number. Data of pairs are contiguous in a value with room for so many pairs a row, so the rows of an expert
are consecutive and the existing products run over them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i32, store_f32, store_i32
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import last_row, slot_address, slot_stride, word

f32 = np.float32


@kernel
def _row_of(control, slot, row):
    """Address of a row of a value."""
    return slot_address(control, slot) + row * slot_stride(control, slot)


@kernel
def _chosen_experts(weights, count, most, experts):
    """Write the experts for which a row has a nonzero weight, in order, at most `most`; returns their number.

    One NaN weight makes the sum NaN regardless of the others: then only that expert is used.
    """
    chosen = 0
    for expert in range(count):
        weight = load_f32(weights + 4 * expert)
        if np.isnan(weight):
            store_i32(experts, expert)
            return 1
        if weight != 0 and chosen < most:
            store_i32(experts + 4 * chosen, expert)
            chosen += 1
    return chosen


ROUTE_ARGUMENTS = ("weights", "count", "most", "starts", "rows", "factors", "places")
"""`weights` of `count` experts, at most `most` per row. Outputs: the first pair of each expert, and the end, int32; row
and weight of each pair; the pairs of each row, then -1."""


def route_rows(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sort the pairs of a call by counting, on one thread: 512 rows of 128 experts take some 50 µs."""
    if thread != 0:
        return
    rows = last_row(step, control)
    count = word(step, 1)
    most = word(step, 2)
    starts = slot_address(control, word(step, 3))
    for expert in range(count + 2):
        store_i32(starts + 4 * expert, 0)
    # Counted two places on: after the sums, the place before an expert's end is its start, and grows with its pairs.
    for row in range(rows):
        experts = _row_of(control, word(step, 6), row)
        chosen = _chosen_experts(_row_of(control, word(step, 0), row), count, most, experts)
        for i in range(chosen):
            here = starts + 4 * load_i32(experts + 4 * i) + 8
            store_i32(here, load_i32(here) + 1)
        for i in range(chosen, most):
            store_i32(experts + 4 * i, -1)
    for expert in range(count):
        here = starts + 4 * expert + 8
        store_i32(here, load_i32(here) + load_i32(here - 4))
    for row in range(rows):
        weights = _row_of(control, word(step, 0), row)
        experts = _row_of(control, word(step, 6), row)
        for i in range(most):
            expert = load_i32(experts + 4 * i)
            if expert < 0:
                break
            here = starts + 4 * expert + 4
            pair = load_i32(here)
            store_i32(here, pair + 1)
            store_i32(slot_address(control, word(step, 4)) + 4 * pair, row)
            store_f32(slot_address(control, word(step, 5)) + 4 * pair, load_f32(weights + 4 * expert))
            store_i32(experts + 4 * i, pair)


SPREAD_ARGUMENTS = ("input", "row_bytes", "count", "starts", "rows", "output")
"""`input` has rows of `row_bytes`, a multiple of 64; so has `output`, one for each pair."""


def spread_to_experts(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy each row's data to its pairs."""
    size = word(step, 1)
    pairs = load_i32(slot_address(control, word(step, 3)) + 4 * word(step, 2))
    for pair in range(pairs * thread // threads, pairs * (thread + 1) // threads):
        row = load_i32(slot_address(control, word(step, 4)) + 4 * pair)
        source = _row_of(control, word(step, 0), row)
        out = slot_address(control, word(step, 5)) + pair * size
        for i in range(0, size, 64):
            store(out + i, load(source + i))


UNITE_ARGUMENTS = ("input", "pair_bytes", "most", "factors", "places", "residual", "output", "width")
"""`residual` is a slot or -1."""


def sum_experts(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """The weighted sum of a row's pairs in the order of experts, as in `mix`; then the residual."""
    rows = last_row(step, control)
    values = slot_address(control, word(step, 0))
    factors = slot_address(control, word(step, 3))
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        places = _row_of(control, word(step, 4), row)
        out = _row_of(control, word(step, 6), row)
        for i in range(0, word(step, 7), 16):
            total = splat(f32(0.0))
            for j in range(word(step, 2)):
                pair = load_i32(places + 4 * j)
                if pair < 0:
                    break
                total = total + load(values + pair * word(step, 1) + 4 * i) * splat(load_f32(factors + 4 * pair))
            if word(step, 5) >= 0:
                total = total + load(_row_of(control, word(step, 5), row) + 4 * i)
            store(out + 4 * i, total)
