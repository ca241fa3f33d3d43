"""Rounding to the values of a scheme, bit-identical to encoding and decoding by `volumetric.dtypes`.

The codec calculates in float32. Here each of its operations is done in float64 and rounded to float32 afterwards, which
gives the same result (53 bits are more than twice 24), while the compiler may neither fuse nor reorder anything across
the rounding. Schemes without a rule here use the codec itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import (
    float_bits,
    half_value,
    load_f32,
    load_u16,
    store_f32,
    store_i32,
)
from volumetric.devices.cpu.kernels.simd import splat, store_half
from volumetric.devices.cpu.kernels.step_words import number, scratch, word

RULES = ("half", "bfloat", "peak", "signed_peak", "range")
"""Index = the code of a rule: float16, bfloat16, int8, int4 and int2, unsigned integers of up to 8 bits."""

_HALF, _BFLOAT, _PEAK, _SIGNED_PEAK, _RANGE = range(len(RULES))

f32 = np.float32
f64 = np.float64

ROUND_ARGUMENTS = ("x", "y", "rows", "width", "size", "levels")
"""`size` numbers share a scale, fewer at a row's end. `levels`: the magnitude of the most negative signed code, or the
largest unsigned one."""


@kernel
def _to_half(value, room):
    """The nearest float16, saturating, as float32; `room` has space for a vector."""
    bounded = f32(min(max(f64(value), -65504.0), 65504.0)) if abs(f64(value)) < np.inf else value
    store_half(room, splat(bounded))
    return half_value(load_u16(room))


@kernel
def _storable(value, stored):
    """The number itself, saturated if it is beyond float16."""
    return stored if abs(f64(value)) >= 65520.0 else value


@kernel
def _inverse(d):
    """One over a scale; 0 if the scale is too small to have an inverse."""
    return f32(0.0) if abs(f64(d)) < 2.938735877055718769922e-39 else f32(1.0 / f64(d))


@kernel
def _peak_group(x, y, count, room):
    """The rule of Q8_0: ``d = max |x| / 127``, codes rounded half away from zero."""
    top = 0.0
    for i in range(count):
        top = max(top, abs(f64(load_f32(x + 4 * i))))
    d = f32(top / 127.0)
    scale = _to_half(d, room)
    inverse = f64(_inverse(_storable(d, scale)))
    for i in range(count):
        scaled = f64(f32(f64(load_f32(x + 4 * i)) * inverse))
        scaled = min(max(scaled, -127.0), 127.0)
        code = np.int64(scaled)
        code += np.int64(2.0 * (scaled - f64(code)))
        store_f32(y + 4 * i, f32(f64(code) * f64(scale)) if code != 0 else f32(0.0) * scale)


@kernel
def _truncated_code(x, low, inverse, shift, top):
    """Code of a number: ``⌊(x - low) inverse + shift⌋`` within 0 … top."""
    scaled = f32(f64(f32(f64(x) - low)) * inverse)
    return np.int64(min(max(f64(f32(f64(scaled) + shift)), 0.0), top + 0.5))


@kernel
def _signed_group(x, y, count, half, room):
    """The rule of Q4_0: the number of largest magnitude (the first of equals) becomes the most negative code."""
    top = f64(load_f32(x))
    for i in range(1, count):
        value = f64(load_f32(x + 4 * i))
        if abs(value) > abs(top):
            top = value
    d = f32(top / -half)
    scale = _to_half(d, room)
    inverse = f64(_inverse(_storable(d, scale)))
    for i in range(count):
        code = _truncated_code(load_f32(x + 4 * i), 0.0, inverse, half + 0.5, 2.0 * half - 1.0) - np.int64(half)
        store_f32(y + 4 * i, f32(f64(code) * f64(scale)) if code != 0 else f32(0.0) * scale)


@kernel
def _range_group(x, y, count, levels, room):
    """The rule of Q4_1: ``d = (max - min) / levels``, offset = min."""
    limit = 1.7014117331926442990585209174225846272e38
    low = np.inf
    high = -np.inf
    for i in range(count):
        value = min(max(f64(load_f32(x + 4 * i)), -limit), limit)
        low = min(low, value)
        high = max(high, value)
    offset = _to_half(f32(low), room)
    low = f64(_storable(f32(low), offset))
    d = f32(f64(f32(max(high - low, 0.0))) / levels)
    scale = _to_half(d, room)
    inverse = f64(_inverse(_storable(d, scale)))
    for i in range(count):
        value = f32(min(max(f64(load_f32(x + 4 * i)), -limit), limit))
        code = _truncated_code(value, low, inverse, 0.5, levels)
        product = f32(f64(code) * f64(scale))
        store_f32(y + 4 * i, f32(f64(product) + f64(offset)))


@kernel
def _to_bfloat(value):
    """Bits of the nearest bfloat16, saturating, as those of a float32."""
    bits = float_bits(value)
    if bits & 0x7FFFFFFF >= 0x7F800000:
        return bits
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    if rounded & 0x7FFFFFFF >= 0x7F800000:
        return bits & 0x80000000 | 0x7F7F0000
    return rounded


def round_to_scheme(rule: int) -> Callable[..., None]:
    """Round all elements by rule number `rule` of `RULES`."""

    def rounded(step: Any, thread: Any, threads: Any, control: Any) -> None:
        width, size = word(step, 3), word(step, 4)
        levels = f64(number(step, 5))
        room = scratch(control, thread)
        groups = (width + size - 1) // size
        items = word(step, 2) * groups
        for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
            first = item % groups * size
            count = min(size, width - first)
            at = 4 * (item // groups * width + first)
            x = word(step, 0) + at
            y = word(step, 1) + at
            if rule == _PEAK:
                _peak_group(x, y, count, room)
            elif rule == _SIGNED_PEAK:
                _signed_group(x, y, count, levels, room)
            elif rule == _RANGE:
                _range_group(x, y, count, levels, room)
            else:
                for i in range(count):
                    if rule == _HALF:
                        store_f32(y + 4 * i, _to_half(load_f32(x + 4 * i), room))
                    else:
                        store_i32(y + 4 * i, _to_bfloat(load_f32(x + 4 * i)))

    return rounded
