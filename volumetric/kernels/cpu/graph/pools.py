"""Largest elements and sums of the windows of images, and their gradients.

Images have three spatial axes, as in `windows`, and the same table of numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.kernels.cpu.graph.lanes import (
    even_lanes,
    load_part,
    load_part_or,
    odd_lanes,
    store_part,
    where_beats,
    where_equal,
)
from volumetric.kernels.cpu.graph.shares import share
from volumetric.kernels.cpu.graph.taps import (
    WIDEST_STRIDE,
    add_inside,
    add_tap,
    first_with,
    lane_numbers,
    last_with,
    load_inside,
    load_tap,
)
from volumetric.kernels.cpu.graph.windows import (
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
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.memory import load_f32, store_f32
from volumetric.kernels.cpu.simd import load, magnitude, peak, peak_size, splat, store
from volumetric.kernels.cpu.steps import scratch, word

f32 = np.float32

POOL_ARGUMENTS = ("x", "y", "tap", "images", "table")
"""`images` is N · C; `table` as in `windows`. Of a gradient x is what comes in, y the image. `tap` is 0: not wanted."""

FEWEST = 8
"""Windows of a line from which it pays to take 16 at a time."""
LONG = 24
"""Neighbouring elements of one window from which it pays to take 16 of them at a time."""


@kernel
def _side_by_side(table):
    """Whether a line of windows is taken 16 windows at a time."""
    return (field(table, STRIDE, 2) <= WIDEST_STRIDE) & (field(table, COUNTS, 2) >= FEWEST)


@kernel
def _line_ends(table, w0, w1):
    """Where windows `w0`, `w1` of two axes start, and the taps of each inside of the image: first and one past last."""
    at0 = w0 * field(table, STRIDE, 0) - field(table, BEFORE, 0)
    at1 = w1 * field(table, STRIDE, 1) - field(table, BEFORE, 1)
    d0, d1 = field(table, DILATION, 0), field(table, DILATION, 1)
    low0, high0 = _first_tap(at0, d0), _last_tap(at0, d0, field(table, SIZES, 0), field(table, KERNEL, 0))
    low1, high1 = _first_tap(at1, d1), _last_tap(at1, d1, field(table, SIZES, 1), field(table, KERNEL, 1))
    return at0, at1, low0, high0, low1, high1


@kernel
def _tap_place(table, i, t2):
    """Where tap `t2` of window `i` lies on its line, and which of the windows from `i` on see it."""
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
def _put(y, value, count):
    """Write the first `count` lanes. Masks are slow where registers are narrower than 16 numbers."""
    if count >= 16:
        store(y, value)
    else:
        store_part(y, value, count)


@kernel
def _first_tap(start, dilation):
    """First tap inside of the image of a window that starts at `start`, perhaps in front of it."""
    return max(0, -start) if dilation == 1 else first_window(dilation, start)


@kernel
def _last_tap(start, dilation, size, taps):
    """One past its last tap inside of the image."""
    return min(taps, size - start) if dilation == 1 else last_window(size, dilation, start, taps)


@kernel
def _largest(x, start, dilation, low, high, tap, best, first):
    """Go on with the taps `low` to `high` of one line: the largest element so far, and its tap."""
    for t in range(low, high):
        v = load_f32(x + 4 * (start + t * dilation))
        wins = (v > best) | ((v != v) & (best == best))
        best = v if wins else best
        first = tap + t if wins else first
    return best, first


@kernel
def _largest_of_many(x, count, block):
    """Largest of `count` neighbours and its number, 16 at a time; `block`: 128 bytes to write to."""
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


@kernel
def _larger(v, number, best, first):
    """Go on with tap `number` of 16 windows: the largest elements so far, and their taps."""
    return where_beats(v, best, v, best), where_beats(v, best, splat(f32(number)), first)


@kernel
def _line_max(table, x, w0, w1, y, tap):
    """Largest elements of a line of windows, 16 at a time; the last 16 begin earlier where fewer are left."""
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
        _put(y + 4 * i, best, n2 - i)
        if tap != 0:
            _put(tap + 4 * i, first, n2 - i)


@kernel
def _line_sum(table, x, w0, w1, y):
    """Sums of a line of windows, 16 at a time, as `_line_max`."""
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
        _put(y + 4 * i, total, n2 - i)


@kernel
def _line_back(table, g, w0, w1, image, tap):
    """Add a line of windows' numbers, 16 at a time, to the elements that `tap` says, or, if that is 0, to all they see.

    Of windows that overlap, the later one sees an element by an earlier tap: so taps fall while windows rise.
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


def pool_max(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Find the largest element of each window and its tap."""
    table = word(step, 4)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k0, k1, k2 = field(table, KERNEL, 0), field(table, KERNEL, 1), field(table, KERNEL, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    step0, step1, step2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
    b0, b1, b2 = field(table, BEFORE, 0), field(table, BEFORE, 1), field(table, BEFORE, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    lines, wanted, block = _side_by_side(table), word(step, 2) != 0, scratch(control, thread)
    items = word(step, 3) * n0
    for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
        x = word(step, 0) + 4 * (item // n0) * s0 * s1 * s2
        at0 = item % n0 * step0 - b0
        low0, high0 = _first_tap(at0, d0), _last_tap(at0, d0, s0, k0)
        for w1 in range(n1):
            if lines:
                place = 4 * (item * n1 + w1) * n2
                _line_max(table, x, item % n0, w1, word(step, 1) + place, word(step, 2) + place if wanted else 0)
                continue
            at1 = w1 * step1 - b1
            low1, high1 = _first_tap(at1, d1), _last_tap(at1, d1, s1, k1)
            for w2 in range(n2):
                at2 = w2 * step2 - b2
                low2, high2 = _first_tap(at2, d2), _last_tap(at2, d2, s2, k2)
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
                            best, where = _largest(line, at2, d2, low2, high2, tap, best, where)
                place = 4 * ((item * n1 + w1) * n2 + w2)
                store_f32(word(step, 1) + place, best)
                if wanted:
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
    lines = _side_by_side(table)
    items = word(step, 3) * n0
    for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
        x = word(step, 0) + 4 * (item // n0) * s0 * s1 * s2
        at0 = item % n0 * step0 - b0
        low0, high0 = _first_tap(at0, d0), _last_tap(at0, d0, s0, k0)
        for w1 in range(n1):
            if lines:
                _line_sum(table, x, item % n0, w1, word(step, 1) + 4 * (item * n1 + w1) * n2)
                continue
            at1 = w1 * step1 - b1
            low1, high1 = _first_tap(at1, d1), _last_tap(at1, d1, s1, k1)
            for w2 in range(n2):
                at2 = w2 * step2 - b2
                low2, high2 = _first_tap(at2, d2), _last_tap(at2, d2, s2, k2)
                total = f32(0.0)
                for t0 in range(low0, high0):
                    for t1 in range(low1, high1):
                        line = x + 4 * (((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2 + at2)
                        for t2 in range(low2, high2):
                            total += load_f32(line + 4 * t2 * d2)
                store_f32(word(step, 1) + 4 * ((item * n1 + w1) * n2 + w2), total)


@kernel
def _cleared(table, y, image):
    """Set one image to zeros and return where it lies."""
    size = field(table, SIZES, 0) * field(table, SIZES, 1) * field(table, SIZES, 2)
    out = y + 4 * image * size
    for i in range(0, size, 16):
        _put(out + 4 * i, splat(f32(0.0)), size - i)
    return out


def pool_max_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Add each window's number (x) to the element that its tap says, windows in rising order."""
    table = word(step, 4)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k1, k2 = field(table, KERNEL, 1), field(table, KERNEL, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    step0, step1, step2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
    b0, b1, b2 = field(table, BEFORE, 0), field(table, BEFORE, 1), field(table, BEFORE, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    lines = _side_by_side(table)
    images = word(step, 3)
    for image in range(share(images, thread, threads), share(images, thread + 1, threads)):
        out = _cleared(table, word(step, 1), image)
        place = 4 * image * n0 * n1 * n2
        for w0 in range(n0):
            for w1 in range(n1):
                if lines:
                    _line_back(table, word(step, 0) + place, w0, w1, out, word(step, 2) + place)
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
    """Add each window's number (x) to all elements that it sees, windows in rising order."""
    table = word(step, 4)
    s0, s1, s2 = field(table, SIZES, 0), field(table, SIZES, 1), field(table, SIZES, 2)
    k0, k1, k2 = field(table, KERNEL, 0), field(table, KERNEL, 1), field(table, KERNEL, 2)
    d0, d1, d2 = field(table, DILATION, 0), field(table, DILATION, 1), field(table, DILATION, 2)
    step0, step1, step2 = field(table, STRIDE, 0), field(table, STRIDE, 1), field(table, STRIDE, 2)
    b0, b1, b2 = field(table, BEFORE, 0), field(table, BEFORE, 1), field(table, BEFORE, 2)
    n0, n1, n2 = field(table, COUNTS, 0), field(table, COUNTS, 1), field(table, COUNTS, 2)
    lines = _side_by_side(table)
    images = word(step, 3)
    for image in range(share(images, thread, threads), share(images, thread + 1, threads)):
        out = _cleared(table, word(step, 1), image)
        g = word(step, 0) + 4 * image * n0 * n1 * n2
        for w0 in range(n0):
            at0 = w0 * step0 - b0
            low0, high0 = _first_tap(at0, d0), _last_tap(at0, d0, s0, k0)
            for w1 in range(n1):
                if lines:
                    _line_back(table, g, w0, w1, out, 0)
                    g += 4 * n2
                    continue
                at1 = w1 * step1 - b1
                low1, high1 = _first_tap(at1, d1), _last_tap(at1, d1, s1, k1)
                for w2 in range(n2):
                    at2 = w2 * step2 - b2
                    low2, high2 = _first_tap(at2, d2), _last_tap(at2, d2, s2, k2)
                    value = load_f32(g)
                    g += 4
                    for t0 in range(low0, high0):
                        for t1 in range(low1, high1):
                            line = out + 4 * (((at0 + t0 * d0) * s1 + at1 + t1 * d1) * s2 + at2)
                            for t2 in range(low2, high2):
                                target = line + 4 * t2 * d2
                                store_f32(target, load_f32(target) + value)
