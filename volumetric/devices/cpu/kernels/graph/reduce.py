"""Sums, means and maxima over axes.

A tensor is viewed as ``[K0, R0, K1, R1, K2]``, where the R are reduced. Sums run in float32, in 16 lanes (times 4 if
the last axis is reduced) that are added at the end: rounding errors grow with the length of a lane, not of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import larger, load_part, load_part_or, store_part
from volumetric.devices.cpu.kernels.memory_access import store_f32
from volumetric.devices.cpu.kernels.simd import load, peak, splat, store, total, where_nan
from volumetric.devices.cpu.kernels.step_words import number, word

f32 = np.float32

REDUCE_ARGUMENTS = ("x", "y", "k0", "r0", "k1", "r1", "k2", "factor")
"""The result is multiplied by `factor`."""


@kernel
def _join(is_max, a, b):
    if is_max:
        return larger(a, b)
    return a + b


@kernel
def _all_lanes(is_max, value):
    """Reduce all lanes to one; NaN wins."""
    if is_max:
        if np.isnan(total(where_nan(value, value, splat(f32(0.0))))):
            return f32(np.nan)
        return peak(value)
    return total(value)


@kernel
def contiguous(is_max, x, count, sums, neutral):
    """Reduce `count` numbers at `x` into the vector `sums`."""
    i = 0
    if count >= 64:
        s1 = neutral
        s2 = neutral
        s3 = neutral
        while count - i >= 64:
            sums = _join(is_max, sums, load(x + 4 * i))
            s1 = _join(is_max, s1, load(x + 4 * i + 64))
            s2 = _join(is_max, s2, load(x + 4 * i + 128))
            s3 = _join(is_max, s3, load(x + 4 * i + 192))
            i += 64
        sums = _join(is_max, _join(is_max, sums, s1), _join(is_max, s2, s3))
    while i < count:
        sums = _join(is_max, sums, load_part_or(x + 4 * i, count - i, neutral))
        i += 16
    return sums


@kernel
def _four(is_max, x, y, k1, r0, r1, k2, neutral, factor):
    """64 neighbouring columns."""
    s0 = neutral
    s1 = neutral
    s2 = neutral
    s3 = neutral
    for i in range(r0):
        for j in range(r1):
            here = x + 4 * k2 * (i * k1 * r1 + j)
            s0 = _join(is_max, s0, load(here))
            s1 = _join(is_max, s1, load(here + 64))
            s2 = _join(is_max, s2, load(here + 128))
            s3 = _join(is_max, s3, load(here + 192))
    store(y, s0 * factor)
    store(y + 64, s1 * factor)
    store(y + 128, s2 * factor)
    store(y + 192, s3 * factor)


def reduce(is_max: int) -> Callable[..., None]:
    """Sum, or maximum, over the axes R0 and R1."""

    def reduce(step: Any, thread: Any, threads: Any, control: Any) -> None:
        k0, r0, k1, r1, k2 = word(step, 2), word(step, 3), word(step, 4), word(step, 5), word(step, 6)
        neutral = splat(f32(-np.inf)) if is_max else splat(f32(0.0))
        factor = splat(number(step, 7))
        blocks = (k2 + 63) // 64
        items = k0 * k1 * blocks
        for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
            row, column = item // blocks, item % blocks * 64
            x = word(step, 0) + 4 * ((row // k1 * r0 * k1 + row % k1) * r1 * k2 + column)
            y = word(step, 1) + 4 * (row * k2 + column)
            if k2 == 1:
                sums = neutral
                for i in range(r0):
                    sums = contiguous(is_max, x + 4 * i * k1 * r1, r1, sums, neutral)
                store_f32(y, _all_lanes(is_max, sums) * number(step, 7))
            elif k2 - column >= 64:
                _four(is_max, x, y, k1, r0, r1, k2, neutral, factor)
            else:
                for at in range(0, k2 - column, 16):
                    left = k2 - column - at
                    sums = neutral
                    for i in range(r0):
                        for j in range(r1):
                            here = x + 4 * (k2 * (i * k1 * r1 + j) + at)
                            sums = _join(is_max, sums, load_part(here, left))
                    store_part(y + 4 * at, sums * factor, left)

    return reduce


SQUARES_ARGUMENTS = ("x", "count", "partial", "chunks")
CHUNK = 8192
"""Elements of one partial sum, whichever thread computes it."""


@kernel
def square_sum(x, count):
    """Sum of squares of `count` numbers."""
    sums = splat(f32(0.0))
    for i in range(0, count, 16):
        value = load_part(x + 4 * i, count - i)
        sums = sums + value * value
    return total(sums)


def squares(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sum of squares of each chunk of a tensor."""
    count, chunks = word(step, 1), word(step, 3)
    for chunk in range(share(chunks, thread, threads), share(chunks, thread + 1, threads)):
        first = chunk * CHUNK
        value = square_sum(word(step, 0) + 4 * first, min(CHUNK, count - first))
        store_f32(word(step, 2) + 4 * chunk, value)


SUMS_ARGUMENTS = ("x", "y", "count")


def chunk_sums(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sum of each chunk of a tensor."""
    count = word(step, 2)
    chunks = (count + CHUNK - 1) // CHUNK
    zero = splat(f32(0.0))
    for chunk in range(share(chunks, thread, threads), share(chunks, thread + 1, threads)):
        first = chunk * CHUNK
        sums = contiguous(False, word(step, 0) + 4 * first, min(CHUNK, count - first), zero, zero)
        store_f32(word(step, 1) + 4 * chunk, total(sums))
