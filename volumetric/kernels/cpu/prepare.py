"""Rows of activations made ready for a product: normalised, padded with zeros, and rounded if asked.

Rows of values have a stride of a multiple of 16 numbers, so reading the last vector whole is safe; what lies beyond
the row's end is ignored.
"""

from __future__ import annotations

import math

import numpy as np

from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.memory import store_f32, store_i32
from volumetric.kernels.cpu.simd import (
    first_lanes,
    largest,
    load,
    magnitude,
    nearest,
    peak,
    splat,
    store,
    store_brain,
    store_bytes,
    total,
    total_ints,
)

NO_NORM, RMS_NORM, LAYER_NORM = range(3)

f32 = np.float32


@kernel
def row_sum(x, n):
    """Sum of `n` numbers."""
    zero = splat(f32(0.0))
    sums = zero
    for i in range(0, n, 16):
        sums += first_lanes(n - i, load(x + 4 * i), zero)
    return total(sums)


@kernel
def square_sum(x, n, mean):
    """Sum of ``(x - mean)²``."""
    zero = splat(f32(0.0))
    centre = splat(mean)
    sums = zero
    for i in range(0, n, 16):
        value = first_lanes(n - i, load(x + 4 * i) - centre, zero)
        sums += value * value
    return total(sums)


@kernel
def normalise(x, out, n, padded, kind, eps, weight, bias):
    """RMS or layer norm of one row (or a copy), then zeros up to `padded`; `weight` and `bias` may be 0 = none."""
    mean = f32(0.0)
    scale = f32(1.0)
    if kind == LAYER_NORM:
        mean = row_sum(x, n) / f32(n)
    if kind != NO_NORM:
        scale = f32(1.0) / f32(math.sqrt(square_sum(x, n, mean) / f32(n) + eps))
    zero = splat(f32(0.0))
    centre = splat(mean)
    factor = splat(scale)
    for i in range(0, n, 16):
        value = (load(x + 4 * i) - centre) * factor
        if weight != 0:
            value = value * load(weight + 4 * i)
        if bias != 0:
            value = value + load(bias + 4 * i)
        store(out + 4 * i, first_lanes(n - i, value, zero))
    for i in range((n + 15) // 16 * 16, padded, 16):
        store(out + 4 * i, zero)


@kernel
def quantise_row(x, out, padded):
    """int8 activations in blocks of 32: q = round(x / d), d = max |x| / 127, rounding half to even.

    Writes `padded` bytes of q, then for every block d, then ``-8·Σq`` (int32), then ``d·Σq``.
    """
    blocks = padded // 32
    scales = out + padded
    for block in range(blocks):
        here = x + 128 * block
        low = load(here)
        high = load(here + 64)
        top = peak(largest(magnitude(low), magnitude(high)))
        scale = top / f32(127.0)
        inverse = f32(0.0)
        if top > f32(1e-30):
            inverse = f32(127.0) / top
        low_ints = nearest(low * splat(inverse))
        high_ints = nearest(high * splat(inverse))
        store_bytes(out + 32 * block, low_ints)
        store_bytes(out + 32 * block + 16, high_ints)
        count = total_ints(low_ints + high_ints)
        store_f32(scales + 4 * block, scale)
        store_i32(scales + 4 * (blocks + block), -8 * count)
        store_f32(scales + 4 * (2 * blocks + block), scale * f32(count))


@kernel
def prepare_row(x, out, room, n, rounding, kind, eps, weight, bias):
    """Normalise one row of `n` numbers into `out`, by way of the float row `room` if `rounding` is not 0, float32."""
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
