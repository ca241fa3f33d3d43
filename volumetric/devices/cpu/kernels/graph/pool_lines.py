"""Lines of windows side by side on the last axis of images, 16 windows at a time: maxima, sums, gradients.

`table` as in `windows`.
"""

from __future__ import annotations

import numpy as np

from volumetric.devices.cpu.kernels.graph.conv_taps import (
    WIDEST_STRIDE,
    add_inside,
    add_tap,
    first_with,
    last_with,
    load_inside,
    load_tap,
)
from volumetric.devices.cpu.kernels.graph.windows import (
    BEFORE,
    COUNTS,
    DILATION,
    KERNEL,
    SIZES,
    STRIDE,
    field,
    first_window,
    last_window,
)
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import (
    even_lanes,
    load_part,
    odd_lanes,
    store_part,
    where_beats,
    where_equal,
)
from volumetric.devices.cpu.kernels.simd import load, splat

f32 = np.float32

FEWEST = 8
"""Windows of a line from which it pays to take 16 at a time."""


@kernel
def side_by_side(table):
    """Whether a line of windows is taken 16 windows at a time."""
    return (field(table, STRIDE, 2) <= WIDEST_STRIDE) & (field(table, COUNTS, 2) >= FEWEST)


@kernel
def _line_ends(table, w0, w1):
    """Start of windows `w0`, `w1` of two axes, and the taps of each inside of the image: first and one past last."""
    at0 = w0 * field(table, STRIDE, 0) - field(table, BEFORE, 0)
    at1 = w1 * field(table, STRIDE, 1) - field(table, BEFORE, 1)
    d0, d1 = field(table, DILATION, 0), field(table, DILATION, 1)
    low0, high0 = first_tap(at0, d0), last_tap(at0, d0, field(table, SIZES, 0), field(table, KERNEL, 0))
    low1, high1 = first_tap(at1, d1), last_tap(at1, d1, field(table, SIZES, 1), field(table, KERNEL, 1))
    return at0, at1, low0, high0, low1, high1


@kernel
def _tap_place(table, i, t2):
    """Position of tap `t2` of window `i` on its line, and which of the windows from `i` on see it."""
    stride, shift = field(table, STRIDE, 2), t2 * field(table, DILATION, 2) - field(table, BEFORE, 2)
    low = first_with(stride, shift) - i
    high = last_with(field(table, SIZES, 2), stride, shift, field(table, COUNTS, 2)) - i
    return 4 * (shift + i * stride), low, high


@kernel
def _inside(table):
    """First window of a line that lies inside of the image with all taps, and one past the last, for `load_inside`."""
    stride, shift = field(table, STRIDE, 2), -field(table, BEFORE, 2)
    reach = (field(table, KERNEL, 2) - 1) * field(table, DILATION, 2)
    high = last_with(field(table, SIZES, 2), stride, shift + reach, field(table, COUNTS, 2))
    return first_with(stride, shift), high - (1 if (stride == 2) & (reach == 0) else 0)


@kernel
def _halves(table):
    """Whether windows are two neighbours, two elements apart: without a loop over taps they take half of the time."""
    return (field(table, STRIDE, 2) == 2) & (field(table, KERNEL, 2) == 2) & (field(table, DILATION, 2) == 1)


@kernel
def first_tap(start, dilation):
    """First tap inside of the image of a window that starts at `start`, which may be negative."""
    return max(0, -start) if dilation == 1 else first_window(dilation, start)


@kernel
def last_tap(start, dilation, size, taps):
    """One past its last tap inside of the image."""
    return min(taps, size - start) if dilation == 1 else last_window(size, dilation, start, taps)


@kernel
def _larger(v, number, best, first):
    """Update 16 windows with tap `number`: the largest elements so far, and their taps."""
    return where_beats(v, best, v, best), where_beats(v, best, splat(f32(number)), first)


@kernel
def line_max(table, x, w0, w1, y, tap):
    """Largest elements of a line of windows, 16 at a time; if fewer are left, the last 16 overlap the previous ones."""
    s1, s2, n2 = field(table, SIZES, 1), field(table, SIZES, 2), field(table, COUNTS, 2)
    k1, k2, stride = field(table, KERNEL, 1), field(table, KERNEL, 2), field(table, STRIDE, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    before, halves = field(table, BEFORE, 2), _halves(table)
    at0, at1, low0, high0, low1, high1 = _line_ends(table, w0, w1)
    least, (low2, high2) = splat(f32(-np.inf)), _inside(table)
    for start in range(0, n2, 16):
        i = max(0, min(start, n2 - 16))
        best, first = least, splat(f32(0.0))
        if (i >= low2) & (i + 16 <= high2):
            for t0 in range(low0, high0):
                for t1 in range(low1, high1):
                    place = x + 4 * (((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2 + i * stride - before)
                    tap1 = (t0 * k1 + t1) * k2
                    if halves:
                        a, b = load(place), load(place + 64)
                        best, first = _larger(even_lanes(a, b), tap1, best, first)
                        best, first = _larger(odd_lanes(a, b), tap1 + 1, best, first)
                        continue
                    for t2 in range(k2):
                        v = load_inside(place + 4 * t2 * d2, stride, t2)
                        best, first = _larger(v, tap1 + t2, best, first)
        else:
            for t0 in range(low0, high0):
                for t1 in range(low1, high1):
                    line, tap1 = x + 4 * ((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2, (t0 * k1 + t1) * k2
                    for t2 in range(k2):
                        place, low, high = _tap_place(table, i, t2)
                        best, first = _larger(load_tap(line + place, stride, low, high, least), tap1 + t2, best, first)
        store_part(y + 4 * i, best, n2 - i)
        if tap != 0:
            store_part(tap + 4 * i, first, n2 - i)


@kernel
def line_sum(table, x, w0, w1, y):
    """Sums of a line of windows, 16 at a time, as `line_max`."""
    s1, s2, n2 = field(table, SIZES, 1), field(table, SIZES, 2), field(table, COUNTS, 2)
    k2, stride, before = field(table, KERNEL, 2), field(table, STRIDE, 2), field(table, BEFORE, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    at0, at1, low0, high0, low1, high1 = _line_ends(table, w0, w1)
    zero, (low2, high2), halves = splat(f32(0.0)), _inside(table), _halves(table)
    for start in range(0, n2, 16):
        i = max(0, min(start, n2 - 16))
        total = zero
        if (i >= low2) & (i + 16 <= high2):
            for t0 in range(low0, high0):
                for t1 in range(low1, high1):
                    place = x + 4 * (((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2 + i * stride - before)
                    if halves:
                        a, b = load(place), load(place + 64)
                        total = total + even_lanes(a, b) + odd_lanes(a, b)
                        continue
                    for t2 in range(k2):
                        total = total + load_inside(place + 4 * t2 * d2, stride, t2)
        else:
            for t0 in range(low0, high0):
                for t1 in range(low1, high1):
                    line = x + 4 * ((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2
                    for t2 in range(k2):
                        place, low, high = _tap_place(table, i, t2)
                        total = total + load_tap(line + place, stride, low, high, zero)
        store_part(y + 4 * i, total, n2 - i)


@kernel
def line_back(table, g, w0, w1, image, tap):
    """Add a line of windows' numbers, 16 at a time, to the elements given by `tap`, or, if that is 0, to all they see.

    If windows overlap, the later one sees an element by an earlier tap, so taps descend while windows ascend.
    """
    s1, s2, n2 = field(table, SIZES, 1), field(table, SIZES, 2), field(table, COUNTS, 2)
    k1, k2, stride = field(table, KERNEL, 1), field(table, KERNEL, 2), field(table, STRIDE, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    before = field(table, BEFORE, 2)
    at0, at1, low0, high0, low1, high1 = _line_ends(table, w0, w1)
    zero, (low2, high2) = splat(f32(0.0)), _inside(table)
    for i in range(0, n2, 16):
        inside, place = (i >= low2) & (i + 16 <= high2), 4 * (i * stride - before)
        value = load(g + 4 * i) if inside else load_part(g + 4 * i, n2 - i)
        chosen = zero
        if tap != 0:
            chosen = load(tap + 4 * i) if inside else load_part(tap + 4 * i, n2 - i)
        for t0 in range(low0, high0):
            for t1 in range(low1, high1):
                line, number = image + 4 * ((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2, (t0 * k1 + t1) * k2
                for t2 in range(k2 - 1, -1, -1):
                    part = where_equal(chosen, splat(f32(number + t2)), value, zero) if tap != 0 else value
                    if inside:
                        add_inside(line + place + 4 * t2 * d2, stride, t2, part)
                    else:
                        edge, low, high = _tap_place(table, i, t2)
                        add_tap(line + edge, stride, low, high, part)
