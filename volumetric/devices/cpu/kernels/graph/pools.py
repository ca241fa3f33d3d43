"""Largest elements and sums of the windows of images, and their gradients.

Images have three spatial axes, as in `windows`, and the same table of numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.conv_taps import lane_numbers
from volumetric.devices.cpu.kernels.graph.pool_lines import (
    first_tap,
    last_tap,
    line_back,
    line_max,
    line_sum,
    side_by_side,
)
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.graph.windows import BEFORE, COUNTS, DILATION, KERNEL, SIZES, STRIDE, field
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part_or, store_part, where_beats, where_equal
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.simd import load, magnitude, peak, peak_size, splat, store
from volumetric.devices.cpu.kernels.step_words import scratch, word

f32 = np.float32

POOL_ARGUMENTS = ("x", "y", "tap", "images", "table")
"""`images` is N · C; `table` as in `windows`. In gradients x is the incoming one, y the image. `tap` 0: not stored."""

LONG = 24
"""Neighbouring elements of one window from which it pays to take 16 of them at a time."""


@kernel
def _largest_of_taps(x, start, dilation, low, high, tap, best, first):
    """Update with the taps `low` to `high` of one line: the largest element so far, and its tap."""
    for t in range(low, high):
        v = load_f32(x + 4 * (start + t * dilation))
        wins = (v > best) | ((v != v) & (best == best))
        best = v if wins else best
        first = tap + t if wins else first
    return best, first


@kernel
def _largest_of_many(x, count, block):
    """Largest of `count` neighbours and its number, 16 at a time; `block`: 128 bytes of scratch."""
    least, zero = splat(f32(-np.inf)), splat(f32(0.0))
    best, first = least, lane_numbers()
    for i in range(0, count, 16):
        v = load(x + 4 * i) if count - i >= 16 else load_part_or(x + 4 * i, count - i, least)
        first = where_beats(v, best, lane_numbers() + splat(f32(i)), first)
        best = where_beats(v, best, v, best)
    size = peak_size(magnitude(best))
    if size == size:
        top = peak(best)
        return top, -int(peak(where_equal(best, splat(top), zero - first, least)))
    store(block, best)
    store(block + 64, first)
    top, where = f32(np.nan), 1 << 30
    for lane in range(16):
        at = int(load_f32(block + 64 + 4 * lane))
        v = load_f32(block + 4 * lane)
        where = at if (v != v) & (at < where) else where
    return top, where


def pool_max(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Find the largest element of each window and its tap."""
    table = word(step, 4)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k0, k1, k2 = field(table, KERNEL, 0), field(table, KERNEL, 1), field(table, KERNEL, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    step0, step1, step2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
    b0, b1, b2 = field(table, BEFORE, 0), field(table, BEFORE, 1), field(table, BEFORE, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    lines, with_taps, block = side_by_side(table), word(step, 2) != 0, scratch(control, thread)
    items = word(step, 3) * n0
    for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
        x = word(step, 0) + 4 * (item // n0) * s0 * s1 * s2
        at0 = item % n0 * step0 - b0
        low0, high0 = first_tap(at0, d0), last_tap(at0, d0, s0, k0)
        for w1 in range(n1):
            if lines:
                place = 4 * (item * n1 + w1) * n2
                line_max(table, x, item % n0, w1, word(step, 1) + place, word(step, 2) + place if with_taps else 0)
                continue
            at1 = w1 * step1 - b1
            low1, high1 = first_tap(at1, d1), last_tap(at1, d1, s1, k1)
            for w2 in range(n2):
                at2 = w2 * step2 - b2
                low2, high2 = first_tap(at2, d2), last_tap(at2, d2, s2, k2)
                best, where = f32(-np.inf), 0
                for t0 in range(low0, high0):
                    for t1 in range(low1, high1):
                        line = x + 4 * ((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2
                        tap = (t0 * k1 + t1) * k2
                        if d2 == 1 and high2 - low2 >= LONG:
                            v, t2 = _largest_of_many(line + 4 * (at2 + low2), high2 - low2, block)
                            wins = (v > best) | ((v != v) & (best == best))
                            best = v if wins else best
                            where = tap + low2 + t2 if wins else where
                        else:
                            best, where = _largest_of_taps(line, at2, d2, low2, high2, tap, best, where)
                place = 4 * ((item * n1 + w1) * n2 + w2)
                store_f32(word(step, 1) + place, best)
                if with_taps:
                    store_f32(word(step, 2) + place, f32(where))


def pool_sum(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sum the elements of each window."""
    table = word(step, 4)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k0, k1, k2 = field(table, KERNEL, 0), field(table, KERNEL, 1), field(table, KERNEL, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    step0, step1, step2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
    b0, b1, b2 = field(table, BEFORE, 0), field(table, BEFORE, 1), field(table, BEFORE, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    lines = side_by_side(table)
    items = word(step, 3) * n0
    for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
        x = word(step, 0) + 4 * (item // n0) * s0 * s1 * s2
        at0 = item % n0 * step0 - b0
        low0, high0 = first_tap(at0, d0), last_tap(at0, d0, s0, k0)
        for w1 in range(n1):
            if lines:
                line_sum(table, x, item % n0, w1, word(step, 1) + 4 * (item * n1 + w1) * n2)
                continue
            at1 = w1 * step1 - b1
            low1, high1 = first_tap(at1, d1), last_tap(at1, d1, s1, k1)
            for w2 in range(n2):
                at2 = w2 * step2 - b2
                low2, high2 = first_tap(at2, d2), last_tap(at2, d2, s2, k2)
                total = f32(0.0)
                for t0 in range(low0, high0):
                    for t1 in range(low1, high1):
                        line = x + 4 * (((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2 + at2)
                        for t2 in range(low2, high2):
                            total += load_f32(line + 4 * t2 * d2)
                store_f32(word(step, 1) + 4 * ((item * n1 + w1) * n2 + w2), total)


@kernel
def _clear_image(table, y, image):
    """Set one image to zeros and return its address."""
    size = field(table, SIZES, 0) * field(table, SIZES, 1) * field(table, SIZES, 2)
    out = y + 4 * image * size
    for i in range(0, size, 16):
        store_part(out + 4 * i, splat(f32(0.0)), size - i)
    return out


def pool_max_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Add each window's number (x) to the element given by its tap, windows in ascending order."""
    table = word(step, 4)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k1, k2 = field(table, KERNEL, 1), field(table, KERNEL, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    step0, step1, step2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
    b0, b1, b2 = field(table, BEFORE, 0), field(table, BEFORE, 1), field(table, BEFORE, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    lines = side_by_side(table)
    images = word(step, 3)
    for image in range(share(images, thread, threads), share(images, thread + 1, threads)):
        out = _clear_image(table, word(step, 1), image)
        place = 4 * image * n0 * n1 * n2
        for w0 in range(n0):
            for w1 in range(n1):
                if lines:
                    line_back(table, word(step, 0) + place, w0, w1, out, word(step, 2) + place)
                    place += 4 * n2
                    continue
                for w2 in range(n2):
                    tap = int(load_f32(word(step, 2) + place))
                    i0 = w0 * step0 - b0 + tap // (k1 * k2) * d0
                    i1 = w1 * step1 - b1 + tap // k2 % k1 * d1
                    i2 = w2 * step2 - b2 + tap % k2 * d2
                    if 0 <= i0 < s0 and 0 <= i1 < s1 and 0 <= i2 < s2:
                        target = out + 4 * ((i0 * s1 + i1) * s2 + i2)
                        store_f32(target, load_f32(target) + load_f32(word(step, 0) + place))
                    place += 4


def pool_spread(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Add each window's number (x) to all elements that it sees, windows in ascending order."""
    table = word(step, 4)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k0, k1, k2 = field(table, KERNEL, 0), field(table, KERNEL, 1), field(table, KERNEL, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    step0, step1, step2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
    b0, b1, b2 = field(table, BEFORE, 0), field(table, BEFORE, 1), field(table, BEFORE, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    lines = side_by_side(table)
    images = word(step, 3)
    for image in range(share(images, thread, threads), share(images, thread + 1, threads)):
        out = _clear_image(table, word(step, 1), image)
        g = word(step, 0) + 4 * image * n0 * n1 * n2
        for w0 in range(n0):
            at0 = w0 * step0 - b0
            low0, high0 = first_tap(at0, d0), last_tap(at0, d0, s0, k0)
            for w1 in range(n1):
                if lines:
                    line_back(table, g, w0, w1, out, 0)
                    g += 4 * n2
                    continue
                at1 = w1 * step1 - b1
                low1, high1 = first_tap(at1, d1), last_tap(at1, d1, s1, k1)
                for w2 in range(n2):
                    at2 = w2 * step2 - b2
                    low2, high2 = first_tap(at2, d2), last_tap(at2, d2, s2, k2)
                    value = load_f32(g)
                    g += 4
                    for t0 in range(low0, high0):
                        for t1 in range(low1, high1):
                            line = out + 4 * (((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2 + at2)
                            for t2 in range(low2, high2):
                                target = line + 4 * t2 * d2
                                store_f32(target, load_f32(target) + value)
