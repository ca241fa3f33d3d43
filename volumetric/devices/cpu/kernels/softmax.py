"""Softmax of rows, in calls and in graphs of fixed shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, load_part_or, store_part, where_equal
from volumetric.devices.cpu.kernels.maths import exp
from volumetric.devices.cpu.kernels.simd import largest, load, peak, splat, store, total, where_less
from volumetric.devices.cpu.kernels.step_words import last_row, slot_address, slot_stride, word

f32 = np.float32


@kernel
def fill_row(out, width, value):
    """Set a row to one number."""
    for i in range(0, width, 16):
        store_part(out + 4 * i, splat(value), width - i)


@kernel
def row_peak(x, width):
    """Largest number of a row; NaN if one is NaN or +inf; -inf for a row of only -inf."""
    lowest = splat(f32(-math.inf))
    zero = splat(f32(0.0))
    top = lowest
    odd = zero
    for i in range(0, width, 16):
        value = load_part_or(x + 4 * i, width - i, lowest)
        top = largest(top, value)
        # inf - inf and NaN - NaN are NaN; -inf is replaced first.
        finite = where_equal(value, lowest, zero, value)
        odd = odd + (finite - finite)
    highest = peak(top)
    return highest + total(odd)


@kernel
def _share_of(x):
    """``e**x`` for x ≤ 0; results that are 0 in float32 are not computed: processors are slow with subnormals."""
    zero = splat(f32(0.0))
    least = splat(f32(-104.0))
    return where_less(x, least, zero, exp(where_less(x, least, zero, x)))


@kernel
def softmax_of_row(x, y, width):
    """``e**x / Σ e**x``; a row of only -inf becomes zeros, a row with NaN or +inf NaN."""
    lowest = splat(f32(-math.inf))
    highest = row_peak(x, width)
    if highest == f32(-math.inf):
        fill_row(y, width, f32(0.0))
        return
    shift = splat(highest)
    sums = splat(f32(0.0))
    whole = width // 16 * 16
    for i in range(0, whole, 16):
        value = _share_of(load(x + 4 * i) - shift)
        store(y + 4 * i, value)
        sums = sums + value
    if whole < width:
        value = _share_of(load_part_or(x + 4 * whole, width - whole, lowest) - shift)
        store_part(y + 4 * whole, value, width - whole)
        sums = sums + value
    factor = splat(f32(1.0) / total(sums))
    for i in range(0, whole, 16):
        store(y + 4 * i, load(y + 4 * i) * factor)
    if whole < width:
        store_part(y + 4 * whole, load_part(y + 4 * whole, width - whole) * factor, width - whole)


SOFTMAX_ARGUMENTS = ("input", "output", "width")


def softmax(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Softmax of each row of a call."""
    rows = last_row(step, control)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
        out = slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1))
        softmax_of_row(x, out, word(step, 2))
