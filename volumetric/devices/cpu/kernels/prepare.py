"""Prepare rows of activations for a product: normalise, pad with zeros, and optionally round.

Rows of values have a stride of a multiple of 16 numbers, so reading the last vector whole is safe; numbers beyond the
row's end are ignored.
"""

from __future__ import annotations

import math

import numpy as np

from volumetric.devices.cpu.kernels.block_rounding import quantise_row
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.simd import first_lanes, load, splat, store, store_brain, total

NO_NORM, RMS_NORM, LAYER_NORM = range(3)

f32 = np.float32
f64 = np.float64


@kernel
def row_sum(x, n):
    """Sum of `n` numbers."""
    zero = splat(f32(0.0))
    sums = zero
    for i in range(0, n, 16):
        sums += first_lanes(n - i, load(x + 4 * i), zero)
    return total(sums)


@kernel
def square_sum(x, n):
    """Sum of ``x²``."""
    zero = splat(f32(0.0))
    sums = zero
    for i in range(0, n, 16):
        value = first_lanes(n - i, load(x + 4 * i), zero)
        sums += value * value
    return total(sums)


@kernel
def moments(x, n, mean):
    """Return the rounding error of a `mean` in float32, and the variance about the exact mean.

    Numbers near `mean` lose nothing when it is subtracted, so their own mean is the rounding error.
    """
    zero = splat(f32(0.0))
    centre = splat(mean)
    sums = zero
    squares = zero
    for i in range(0, n, 16):
        value = first_lanes(n - i, load(x + 4 * i) - centre, zero)
        sums += value
        squares += value * value
    shift = total(sums) / f32(n)
    return shift, variance_about(total(squares), n, shift)


@kernel
def variance_about(squares, n, shift):
    """``squares / n - shift²``, not below 0."""
    variance = f64(squares) / f64(n) - f64(shift) * f64(shift)
    return f32(0.0) if variance < 0 else f32(variance)  # `max` would lose NaN


@kernel
def inverse_root(power, eps):
    """``1 / √(power + eps)``; 0 where `power` is infinite.

    In float64, because in float32 the compiler refines the processor's estimate, which gives NaN there.
    """
    return f32(1.0 / math.sqrt(f64(power) + f64(eps)))


@kernel
def normalise(x, out, n, padded, kind, eps, weight, bias):
    """RMS or layer norm of one row (or a copy), then zeros up to `padded`; `weight` and `bias` may be 0 = none."""
    mean = f32(0.0)
    shift = f32(0.0)
    scale = f32(1.0)
    if kind == LAYER_NORM:
        mean = row_sum(x, n) / f32(n)
        shift, variance = moments(x, n, mean)
        scale = inverse_root(variance, eps)
    elif kind == RMS_NORM:
        scale = inverse_root(square_sum(x, n) / f32(n), eps)
    zero = splat(f32(0.0))
    centre = splat(mean)
    rest = splat(shift)
    factor = splat(scale)
    for i in range(0, n, 16):
        value = (load(x + 4 * i) - centre - rest) * factor
        if weight != 0:
            value = value * load(weight + 4 * i)
        if bias != 0:
            value = value + load(bias + 4 * i)
        store(out + 4 * i, first_lanes(n - i, value, zero))
    for i in range((n + 15) // 16 * 16, padded, 16):
        store(out + 4 * i, zero)


@kernel
def code_step(top):
    """The step of an int8 code if the largest magnitude is `top`: NaN if that is not finite."""
    return top / f32(127.0) if top < f32(math.inf) else f32(math.nan)


@kernel
def prepare_activations(x, out, room, n, rounding, kind, eps, weight, bias):
    """Normalise one row of `n` numbers into `out`, through the float row `room` if `rounding` is not 0, float32."""
    padded = (n + 63) // 64 * 64
    if rounding == 0:
        normalise(x, out, n, padded, kind, eps, weight, bias)
        return
    normalise(x, room, n, padded, kind, eps, weight, bias)
    if rounding == 1:
        quantise_row(room, out, padded)
    else:
        for i in range(0, padded, 16):
            store_brain(out + 2 * i, load(room + 4 * i))
