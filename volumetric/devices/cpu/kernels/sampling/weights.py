"""Weights ``e**((score - top) / temperature)`` in float64, their sums, and searches in their running sum."""

from __future__ import annotations

import math

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import bits_float, float_bits, load_f64, store_f64
from volumetric.devices.cpu.kernels.sampling.doubles import (
    ROUNDER,
    ROUNDER32,
    load64,
    splat64,
    store64,
    times_power,
    times_power32,
    total64,
    widen,
    zero_below,
)
from volumetric.devices.cpu.kernels.simd import load, splat, where_less

ROUGH = 1e-6
"""Maximum relative error of `rough_sum`."""
BLOCK = 512
"""Weights per stored sum: within one such block tokens are searched one by one."""

f32 = np.float32
_TERMS = tuple(1.0 / math.factorial(n) for n in range(14))
(_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12, _T13) = _TERMS


@kernel
def weight(x, turns, high, low, inverse, least):
    """``e**(x / t)`` of 16 numbers below 0, and 0 if `x` is below `least`: results below 2.3e-308 count as 0.

    ``x = n · t ln 2 + r`` with ``|r| ≤ t ln 2 / 2``, and Taylor's series of ``e**(r / t)`` as far as float64 sees it.

    Parameters
    ----------
    turns : ``1 / (t ln 2)``
    high, low : ``t ln 2`` in two parts, the first of few enough bits that ``n · high`` is exact
    inverse : ``1 / t``
    """
    rounded = x * turns + splat64(ROUNDER)
    n = rounded - splat64(ROUNDER)
    r = (x - n * high - n * low) * inverse
    y = splat64(_T13)
    y = y * r + splat64(_T12)
    y = y * r + splat64(_T11)
    y = y * r + splat64(_T10)
    y = y * r + splat64(_T9)
    y = y * r + splat64(_T8)
    y = y * r + splat64(_T7)
    y = y * r + splat64(_T6)
    y = y * r + splat64(_T5)
    y = y * r + splat64(_T4)
    y = y * r + splat64(_T3)
    y = y * r + splat64(_T2)
    y = y * r + splat64(_T1)
    y = y * r + splat64(_T0)
    return zero_below(x, least, times_power(y, rounded))


@kernel
def weigh(scores, count, top, heat, weights):
    """Write the weights of `count` scores (a multiple of 16), and return their sum.

    Parameters
    ----------
    scores, weights : addresses of float32 and float64; with 0 for `weights`, only their sum is computed
    top : the largest score; the difference to it is rounded to float32
    heat : address of the five numbers that `weight` takes, float64
    """
    turns, high, low = splat64(load_f64(heat)), splat64(load_f64(heat + 8)), splat64(load_f64(heat + 16))
    inverse, least = splat64(load_f64(heat + 24)), splat64(load_f64(heat + 32))
    tops, sums = splat(top), splat64(0.0)
    for i in range(0, count, 16):
        value = weight(widen(load(scores + 4 * i) - tops), turns, high, low, inverse, least)
        if weights != 0:
            store64(weights + 8 * i, value)
        sums += value
    return total64(sums)


@kernel
def weigh_blocks(scores, count, top, heat, sums):
    """As `weigh`, but write the sum of each `BLOCK` weights to `sums`, not the weights; returns the sum of all."""
    whole = 0.0
    for first in range(0, count, BLOCK):
        part = weigh(scores + 4 * first, min(BLOCK, count - first), top, heat, 0)
        store_f64(sums + first // BLOCK * 8, part)
        whole += part
    return whole


@kernel
def sum_blocks(weights, count, sums):
    """Write the sum of each `BLOCK` of `count` weights (a multiple of 16) to `sums`, and return the sum of all."""
    whole = 0.0
    for first in range(0, count, BLOCK):
        sums16 = splat64(0.0)
        for i in range(first, min(first + BLOCK, count), 16):
            sums16 += load64(weights + 8 * i)
        part = total64(sums16)
        store_f64(sums + first // BLOCK * 8, part)
        whole += part
    return whole


@kernel
def block_at(sums, count, point):
    """Return the block of `count` weights in which their running sum passes `point`, and the sum before it."""
    before, last, before_last = 0.0, 0, 0.0
    for b in range((count + BLOCK - 1) // BLOCK):
        part = load_f64(sums + 8 * b)
        if part > 0.0:
            last, before_last = b, before
            if before + part > point:
                break
        before += part
    return last, before_last


@kernel
def place_at(weights, count, before, point):
    """Return the first of `count` indices where the running sum, starting at `before`, passes `point`, and that sum.

    If rounding lets none pass, returns the last index with a weight: never one without weight.
    """
    last = 0
    for i in range(count):
        part = load_f64(weights + 8 * i)
        if part > 0.0:
            last = i
            before += part
            if before > point:
                break
    return last, before


@kernel
def rough_sum(scores, count, top, turn, inverse):
    """Sum of the weights of `count` scores, a multiple of 16, in float32: its relative error is below `ROUGH`.

    As `weight`, with Taylor's series up to the sixth power (1.2e-7) and float32 sums of four terms each (1.8e-7).

    Parameters
    ----------
    turn, inverse : ``t ln 2`` and ``1 / t``, for temperatures from 1e-6 to 1e6
    """
    first_part = bits_float(float_bits(f32(turn)) & -256)  # 16 bits, times n of 7
    high, low = splat(first_part), splat(f32(turn - first_part))
    turns, inverses, least = splat(f32(1.0 / turn)), splat(f32(inverse)), splat(f32(-126.0 * turn))
    rounder, zero, tops, sums = splat(f32(ROUNDER32)), splat(f32(0.0)), splat(top), splat64(0.0)
    for first in range(0, count, 64):
        part = zero
        for i in range(first, min(first + 64, count), 16):
            x = load(scores + 4 * i) - tops
            rounded = x * turns + rounder
            n = rounded - rounder
            r = (x - n * high - n * low) * inverses
            y = splat(f32(_T6))
            y = y * r + splat(f32(_T5))
            y = y * r + splat(f32(_T4))
            y = y * r + splat(f32(_T3))
            y = y * r + splat(f32(_T2))
            y = y * r + splat(f32(_T1))
            y = y * r + splat(f32(_T0))
            part = part + where_less(x, least, zero, times_power32(y, rounded))
        sums += widen(part)
    return total64(sums)


@kernel
def rough_blocks(scores, count, top, turn, inverse, sums):
    """As `rough_sum`, and write the sum of each `BLOCK` scores to `sums`."""
    whole = 0.0
    for first in range(0, count, BLOCK):
        part = rough_sum(scores + 4 * first, min(BLOCK, count - first), top, turn, inverse)
        store_f64(sums + first // BLOCK * 8, part)
        whole += part
    return whole
