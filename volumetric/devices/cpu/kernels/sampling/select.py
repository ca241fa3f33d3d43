"""The largest of many numbers, by count or by weight, without sorting them."""

from __future__ import annotations

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_f64, load_i32, store_f32, store_f64, store_i32
from volumetric.devices.cpu.kernels.sampling.doubles import (
    count_above,
    count_at_least,
    count_equal,
    load64,
    only_above,
    pack_above,
    pack_at_least,
    pack_below,
    splat64,
    store64,
    total64,
    widen,
)
from volumetric.devices.cpu.kernels.simd import load, splat, store

GROUP = 128
"""Scores per group: the largest of each lane of 16 is stored, so that reading 16 numbers can skip 128."""

f32 = np.float32
_FEW = 32
_LOWEST = -np.inf


@kernel
def _sink(keys, count):
    """Sort `count` float64, largest first."""
    for i in range(1, count):
        key = load_f64(keys + 8 * i)
        j = i
        while j > 0 and load_f64(keys + 8 * (j - 1)) < key:
            store_f64(keys + 8 * j, load_f64(keys + 8 * (j - 1)))
            j -= 1
        store_f64(keys + 8 * j, key)


@kernel
def _pivot(keys, count, spare):
    """The median of nine keys."""
    for i in range(9):
        store_f64(spare + 8 * i, load_f64(keys + 8 * ((2 * i + 1) * count // 18)))
    _sink(spare, 9)
    return load_f64(spare + 8 * 4)


@kernel
def find_threshold(keys, count, goal, by_weight, spare):
    """Find the largest key such that it and all larger keys reach `goal`.

    Parameters
    ----------
    keys : address of float64 with room for 16 more; overwritten
    goal : the target: so many keys, or with `by_weight` keys of this sum, none being negative
    spare : address of nine float64

    Returns
    -------
    cut : the key; -inf if all keys together do not reach `goal`
    left : the amount that keys equal to `cut` must contribute
    """
    above = 0.0
    while count > _FEW:
        store64(keys + 8 * count, splat64(_LOWEST))
        pivot = _pivot(keys, count, spare)
        pivots = splat64(pivot)
        more, same = 0, 0
        sums = splat64(0.0)
        for i in range(0, count, 16):
            value = load64(keys + 8 * i)
            more += count_above(value, pivots)
            same += count_equal(value, pivots)
            sums += only_above(value, pivots)
        same = min(same, count - more)  # the -inf after the last are no keys
        larger = above + (total64(sums) if by_weight else float(more))
        if larger >= goal:
            out = keys
            for i in range(0, count, 16):
                out = pack_above(out, load64(keys + 8 * i), pivots)
            count = more
            continue
        up_to = larger + (pivot * same if by_weight else float(same))
        if up_to >= goal:
            return pivot, goal - larger
        above = up_to
        out = keys
        for i in range(0, count, 16):
            out = pack_below(out, load64(keys + 8 * i), pivots)
        count -= more + same
    _sink(keys, count)
    i = 0
    while i < count:
        key = load_f64(keys + 8 * i)
        before = above
        while i < count and load_f64(keys + 8 * i) == key:
            above += key if by_weight else 1.0
            i += 1
        if above >= goal:
            return key, goal - before
    return _LOWEST, np.inf


@kernel
def widen_all(scores, count, keys):
    """Write `count` float32 (a multiple of 16) as float64."""
    for i in range(0, count, 16):
        store64(keys + 8 * i, widen(load(scores + 4 * i)))


@kernel
def collect_at_least(row, count, peaks, least, scores, numbers):
    """Copy the scores ≥ `least` and their numbers, in order; returns their count.

    Parameters
    ----------
    row : address of `count` float32, a multiple of `GROUP`
    peaks : address of 16 float32 for each group, the largest of each lane
    scores, numbers : addresses of float32 and int32, with room for 16 more; -inf follows the last score
    """
    floor, copied = splat(least), 0
    for first in range(0, count, GROUP):
        if count_at_least(load(peaks + first // GROUP * 64), floor) > 0:
            for i in range(first, first + GROUP, 16):
                copied += pack_at_least(scores + 4 * copied, numbers + 4 * copied, load(row + 4 * i), floor, i)
    store(scores + 4 * copied, splat(f32(_LOWEST)))
    return copied


@kernel
def keep_largest(row, count, peaks, top_k, keys, scores, numbers, spare):
    """As `collect_at_least` for the `top_k` largest scores, the first among equals; `top_k` is below `count`."""
    lanes = count // GROUP * 16
    if 2 * top_k <= lanes:
        # So many lanes have a score as large as the smallest of their peaks: no score below it is needed.
        widen_all(peaks, lanes, keys)
        least, _ = find_threshold(keys, lanes, float(top_k), False, spare)
    else:
        widen_all(row, count, keys)
        least, _ = find_threshold(keys, count, float(top_k), False, spare)
    candidates = collect_at_least(row, count, peaks, f32(least), scores, numbers)
    if candidates == top_k:
        return candidates
    widen_all(scores, (candidates + 15) // 16 * 16, keys)
    cut, left = find_threshold(keys, candidates, float(top_k), False, spare)
    copied = 0
    for i in range(candidates):
        score = load_f32(scores + 4 * i)
        if score < cut:
            continue
        if score == cut:
            if left <= 0.0:
                continue
            left -= 1.0
        store_f32(scores + 4 * copied, score)
        store_i32(numbers + 4 * copied, load_i32(numbers + 4 * i))
        copied += 1
    store(scores + 4 * copied, splat(f32(_LOWEST)))
    return copied


@kernel
def _before(scores, numbers, i, score, number):
    """Whether entry `i` is larger than `score`, or equal with a lower number."""
    other = load_f32(scores + 4 * i)
    return other > score or (other == score and load_i32(numbers + 4 * i) < number)


@kernel
def sort_largest(scores, numbers, count):
    """Sort entries, the largest score first and the lowest number among equals (Shell, CACM 1959)."""
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            score, number = load_f32(scores + 4 * i), load_i32(numbers + 4 * i)
            j = i
            while j >= gap and not _before(scores, numbers, j - gap, score, number):
                store_f32(scores + 4 * j, load_f32(scores + 4 * (j - gap)))
                store_i32(numbers + 4 * j, load_i32(numbers + 4 * (j - gap)))
                j -= gap
            store_f32(scores + 4 * j, score)
            store_i32(numbers + 4 * j, number)
        gap //= 2
