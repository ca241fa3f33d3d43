"""Windows copied out of images, and summed back into them.

Images have three spatial axes here; missing ones have size 1. Columns are ``[N, C, taps, windows]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import (
    even_lanes,
    load_between,
    spread_first,
    spread_last,
    store_between,
    store_part,
)
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i64, store_f32
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import word

f32 = np.float32

WINDOW_ARGUMENTS = ("x", "y", "images", "table")
"""`images` is N · C. `table` holds 3 numbers each of: sizes, kernel, stride, dilation, before, counts."""

SIZES, KERNEL, STRIDE, DILATION, BEFORE, COUNTS = range(6)


@kernel
def field(table, name, axis):
    """Number `name` of an axis."""
    return load_i64(table + 8 * (3 * name + axis))


@kernel
def first_window(stride, shift):
    """First window whose tap, `shift` elements from the window's start, is at 0 or later."""
    return max(0, (stride - 1 - shift) // stride)


@kernel
def last_window(size, stride, shift, count):
    """One past the last window whose tap is before `size`."""
    return min(count, (size - 1 - shift) // stride + 1)


@kernel
def _zeros(out, count):
    for i in range(0, count, 16):
        store_part(out + 4 * i, splat(f32(0.0)), count - i)


@kernel
def _copy_line(x, stride, low, high, count, out):
    """One tap of a line of windows: ``out[w] = x[stride w]`` from window `low` up to `high`, 0 outside."""
    if stride == 1:
        for i in range(0, count, 16):
            if (i >= low) & (i + 16 <= high):
                store(out + 4 * i, load(x + 4 * i))
            else:
                store_part(out + 4 * i, load_between(x + 4 * i, low - i, high - i), count - i)
    elif stride == 2:
        for i in range(0, count, 16):
            here, first, last = x + 8 * i, 2 * (low - i), 2 * (high - i) - 1
            if (first <= 0) & (last > 31):
                store(out + 4 * i, even_lanes(load(here), load(here + 64)))
            else:
                pair = even_lanes(load_between(here, first, last), load_between(here + 64, first - 16, last - 16))
                store_part(out + 4 * i, pair, count - i)
    else:
        _zeros(out, count)
        for w in range(low, high):
            store_f32(out + 4 * w, load_f32(x + 4 * stride * w))


@kernel
def _add_line(columns, x, stride, low, high):
    """Add the numbers that `_copy_line` copies back to their source."""
    if stride == 1:
        for i in range(0, high, 16):
            if (i >= low) & (i + 16 <= high):
                store(x + 4 * i, load(x + 4 * i) + load(columns + 4 * i))
            else:
                value = load_between(x + 4 * i, low - i, high - i) + load_between(columns + 4 * i, low - i, high - i)
                store_between(x + 4 * i, value, low - i, high - i)
    elif stride == 2:
        for i in range(0, high, 16):
            here, first, last = x + 8 * i, 2 * (low - i), 2 * (high - i) - 1
            value = load_between(columns + 4 * i, low - i, high - i)
            store_between(here, load_between(here, first, last) + spread_first(value), first, last)
            if last > 16:
                here, first, last = here + 64, first - 16, last - 16
                store_between(here, load_between(here, first, last) + spread_last(value), first, last)
    else:
        for w in range(low, high):
            target = x + 4 * stride * w
            store_f32(target, load_f32(target) + load_f32(columns + 4 * w))


def unfold(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy windows out of images."""
    table = word(step, 3)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k1, k2 = field(table, KERNEL, 1), field(table, KERNEL, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    taps = field(table, KERNEL, 0) * k1 * k2
    items = word(step, 2) * taps
    for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
        image, tap = item // taps, item % taps
        x = word(step, 0) + 4 * image * s0 * s1 * s2
        out = word(step, 1) + 4 * item * n0 * n1 * n2
        shift0 = tap // (k1 * k2) * field(table, DILATION, 0) - field(table, BEFORE, 0)
        shift1 = tap // k2 % k1 * field(table, DILATION, 1) - field(table, BEFORE, 1)
        shift2 = tap % k2 * field(table, DILATION, 2) - field(table, BEFORE, 2)
        stride0, stride1, stride2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
        low = min(first_window(stride2, shift2), n2)
        high = max(low, last_window(s2, stride2, shift2, n2))
        for w0 in range(n0):
            i0 = w0 * stride0 + shift0
            for w1 in range(n1):
                i1 = w1 * stride1 + shift1
                if 0 <= i0 < s0 and 0 <= i1 < s1:
                    _copy_line(x + 4 * ((i0 * s1 + i1) * s2 + shift2), stride2, low, high, n2, out)
                else:
                    _zeros(out, n2)
                out += 4 * n2


def fold(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sum windows (x) back into images (y), taps in ascending order."""
    table = word(step, 3)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k1, k2 = field(table, KERNEL, 1), field(table, KERNEL, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    taps = field(table, KERNEL, 0) * k1 * k2
    images = word(step, 2)
    for image in range(share(images, thread, threads), share(images, thread + 1, threads)):
        out = word(step, 1) + 4 * image * s0 * s1 * s2
        columns = word(step, 0) + 4 * image * taps * n0 * n1 * n2
        _zeros(out, s0 * s1 * s2)
        for tap in range(taps):
            shift0 = tap // (k1 * k2) * field(table, DILATION, 0) - field(table, BEFORE, 0)
            shift1 = tap // k2 % k1 * field(table, DILATION, 1) - field(table, BEFORE, 1)
            shift2 = tap % k2 * field(table, DILATION, 2) - field(table, BEFORE, 2)
            stride0, stride1, stride2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
            low = first_window(stride2, shift2)
            high = last_window(s2, stride2, shift2, n2)
            for w0 in range(n0):
                i0 = w0 * stride0 + shift0
                for w1 in range(n1):
                    i1 = w1 * stride1 + shift1
                    if 0 <= i0 < s0 and 0 <= i1 < s1:
                        _add_line(columns, out + 4 * ((i0 * s1 + i1) * s2 + shift2), stride2, low, high)
                    columns += 4 * n2
