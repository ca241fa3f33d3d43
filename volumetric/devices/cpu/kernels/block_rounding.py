"""Rows of float32 rounded to int8 in blocks of 32, sixteen blocks at a time.

Each block needs its largest magnitude and its sums. Computed per block these are vector reductions, four dependent
steps each; here sixteen blocks share the steps, one lane per block. Maxima and sums of integers are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.bytedot import ByteDot
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.llvm_emitter import F32X, I8, I32X, LANES, Emitter, constant
from volumetric.devices.cpu.kernels.simd import (
    Floats,
    Ints,
    as_bits,
    as_floats,
    define,
    larger_magnitude,
    load,
    splat,
    store,
    store_first,
    times,
    where_less,
)

_TOGETHER = LANES
_CODES = 127.0

f32 = np.float32


@kernel
def quantise_row(x, out, padded):
    """int8 activations in blocks of 32: q = round(x / d), d = max |x| / 127, rounding half to even.

    Writes `padded` bytes of q, then for every block d, then ``-8·Σq`` (int32), then ``d·Σq``, then ``-8·Σq`` of its
    first half. A block with a non-finite number has d = NaN, and so have all products with it.
    """
    blocks = padded // 32
    count = min(blocks, _TOGETHER)
    steps = out + padded
    rest = 4 * blocks
    for some in range(0, blocks, _TOGETHER):
        start = min(some, blocks - count)  # the last sixteen may overlap those before: the result is the same
        here = x + 128 * start
        tops = _block_tops(here, count)
        limit = splat(f32(math.inf))
        step = where_less(tops, limit, tops * splat(f32(1.0 / _CODES)), splat(f32(math.nan)))
        inverse = where_less(splat(f32(1e-30)), tops, splat(f32(_CODES)) / tops, splat(f32(0.0)))
        _store_codes(steps + 4 * start, step, count)
        room = steps + 3 * rest + 4 * start  # of the sums, which come last
        _store_codes(room, inverse, count)
        for block in range(count):
            _round_block(here + 128 * block, room + 4 * block, out + 32 * (start + block))
    for some in range(0, blocks, _TOGETHER):
        start = min(some, blocks - count)
        first = _half_sums(out + 32 * start, count, 0)
        whole = first + _half_sums(out + 32 * start, count, 1)
        at = steps + 4 * start
        _store_codes(at + rest, as_bits(times(whole, -8)), count)
        _store_codes(at + 2 * rest, load(at) * as_floats(whole), count)
        _store_codes(at + 3 * rest, as_bits(times(first, -8)), count)


@kernel
def _store_codes(address, value, count):
    if count == _TOGETHER:
        store(address, value)
    else:
        store_first(address, value, count)


Join = Callable[[ir.Value, ir.Value], ir.Value]


def _fold(e: Emitter, vectors: list[ir.Value], join: Join, steps: int) -> list[ir.Value]:
    """Join neighbouring lanes `steps` times; each time two vectors become one, lanes of the first one first."""
    for _ in range(steps):
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [join(_every_other(e, a, b, 0), _every_other(e, a, b, 1)) for a, b in pairs]
    return vectors


def _every_other(e: Emitter, a: ir.Value, b: ir.Value, first: int) -> ir.Value:
    """Every other lane of `a` and `b`, from `first` on."""
    return e.b.shuffle_vector(a, b, ir.Constant(I32X, list(range(first, 2 * LANES, 2))))


def _place(e: Emitter, base: ir.Value, index: int, count: ir.Value, size: int) -> ir.Value:
    """Address of the item of `size` bytes with this number, clamped to the last of `count` items."""
    last, number = e.b.sub(count, constant(1)), constant(index)
    return e.at(base, e.b.mul(e.b.select(e.b.icmp_signed("<", number, last), number, last), constant(size)))


@define(Floats, types.int64, types.int64)
def _block_tops(e: Emitter, x: ir.Value, count: ir.Value) -> ir.Value:
    """Largest magnitudes of 16 blocks, NaN if a block contains NaN; beyond `count` the last block is repeated."""
    tops = []
    for i in range(_TOGETHER):
        here = _place(e, x, i, count, 128)
        tops.append(e.b.bitcast(larger_magnitude(e, e.load(here, F32X), e.load(e.at(here, 64), F32X)), I32X))
    # Without its sign a float is ordered as its bits, with infinity above all numbers and NaN above infinity.
    [largest] = _fold(e, tops, lambda a, b: e.b.select(e.b.icmp_signed(">", a, b), a, b), 4)
    return e.b.bitcast(largest, F32X)


@define(types.void, types.int64, types.int64, types.int64)
def _round_block(e: Emitter, x: ir.Value, inverse: ir.Value, out: ir.Value) -> None:
    """Multiply 32 numbers by the one at `inverse` and round to bytes."""
    factor = e.broadcast(inverse)
    for half in range(2):
        # Adding 1.5 * 2**23 leaves the integer in the low bits of the sum, as in `simd.nearest`.
        shifted = e.b.fadd(e.b.fmul(e.load(e.at(x, 64 * half), F32X), factor), e.floats(12582912.0))
        bytes_ = e.b.trunc(e.b.bitcast(shifted, I32X), ir.VectorType(I8, LANES))
        e.store(e.at(out, 16 * half), bytes_, align=1)


@define(Ints, types.int64, types.int64, types.int64)
def _half_sums(e: Emitter, q: ir.Value, count: ir.Value, half: ir.Value) -> ir.Value:
    """Sums of the first (0) or second (1) halves of 16 blocks of bytes; beyond `count` the last block is repeated."""
    dot, pairs = ByteDot(e, 0), e.b.lshr(count, constant(1))
    quads = [dot.bytes_in(e.load(_place(e, q, i, pairs, 64), I32X, align=1)) for i in range(_TOGETHER // 2)]
    low, high = _fold(e, quads, e.b.add, 2)
    is_first = e.b.icmp_signed("==", half, constant(0))
    return e.b.select(is_first, _every_other(e, low, high, 0), _every_other(e, low, high, 1))
