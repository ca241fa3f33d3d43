"""Noise from a hash of its position, as in `layers.noise`, 16 elements at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.graph.thread_shares import flat_share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.llvm_emitter import I32, Emitter
from volumetric.devices.cpu.kernels.masked_load import load_part, root, store_part
from volumetric.devices.cpu.kernels.maths import log_of_normal, sin_quarter_turned
from volumetric.devices.cpu.kernels.memory_access import load_u32
from volumetric.devices.cpu.kernels.simd import Floats, define, load, splat, store
from volumetric.devices.cpu.kernels.step_words import number, word

f32 = np.float32

DROPOUT_ARGUMENTS = ("x", "y", "key", "count", "stream", "threshold", "factor")
"""`threshold`: probability of dropping in units of 2**-24; `factor` scales kept elements."""


def _mix_words(e: Emitter, words: list[ir.Value]) -> list[ir.Value]:
    """Each word plus the product of two others, one after the other."""
    x, y, z, w = words
    x = e.b.add(x, e.b.mul(y, w))
    y = e.b.add(y, e.b.mul(z, x))
    z = e.b.add(z, e.b.mul(x, y))
    return [x, y, z, e.b.add(w, e.b.mul(y, z))]


def _hash_words(e: Emitter, first: ir.Value, others: list[ir.Value]) -> list[ir.Value]:
    """Words of PCG4D of the numbers from `first` on and three others, all int64 of which 32 bits count."""
    words = [e.splat(e.b.trunc(word, I32)) for word in (first, *others)]
    words[0] = e.b.add(words[0], e.lane_numbers())
    words = [e.b.add(e.b.mul(word, e.ints(1664525)), e.ints(1013904223)) for word in words]
    words = [e.b.xor(word, e.b.lshr(word, e.ints(16))) for word in _mix_words(e, words)]
    return _mix_words(e, words)


@define(Floats, Floats, Floats, types.int64, types.int64, types.int64, types.int64, types.int64)
def select_kept(
    e: Emitter,
    value: ir.Value,
    rest: ir.Value,
    place: ir.Value,
    stream: ir.Value,
    first: ir.Value,
    second: ir.Value,
    threshold: ir.Value,
) -> ir.Value:
    """`value` in the lanes of kept elements, numbered from `place` on; `rest` in the others."""
    hashed = e.b.lshr(_hash_words(e, place, [stream, first, second])[0], e.ints(8))
    return e.b.select(e.b.icmp_unsigned(">=", hashed, e.splat(e.b.trunc(threshold, I32))), value, rest)


def _chance(e: Emitter, word: ir.Value) -> ir.Value:
    """``(n + 0.5) / 2**23`` with the upper 23 bits of a word as n: exact, and never 0 or 1."""
    n = e.to_float(e.b.lshr(word, e.ints(9)))
    return e.b.fmul(e.b.fadd(n, e.floats(0.5)), e.floats(2.0**-23))


@define(Floats, types.int64, types.int64, types.int64, types.int64)
def uniform(e: Emitter, place: ir.Value, second: ir.Value, third: ir.Value, fourth: ir.Value) -> ir.Value:
    """Numbers between 0 and 1, by the first word of the hash."""
    return _chance(e, _hash_words(e, place, [second, third, fourth])[0])


@define(Floats, types.int64, types.int64, types.int64, types.int64)
def uniform_pair(e: Emitter, place: ir.Value, second: ir.Value, third: ir.Value, fourth: ir.Value) -> ir.Value:
    """Uniform numbers from the second word of the hash; the compiler hashes once for both."""
    return _chance(e, _hash_words(e, place, [second, third, fourth])[1])


GUMBEL_ARGUMENTS = ("x", "positions", "y", "rows", "width", "low", "high")
"""`low`, `high`: halves of the seed."""


@kernel
def _gumbel(place, position, low, high):
    """``-log(-log u)`` of the elements from `place` on; neither logarithm gets 0, infinity or a subnormal number."""
    zero = splat(f32(0.0))
    return zero - log_of_normal(zero - log_of_normal(uniform(place, position, low, high)))


def gumbel(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Add ``-log(-log u)`` to the rows of x, u by the place in the row and the row's position."""
    x, positions, y, width = word(step, 0), word(step, 1), word(step, 2), word(step, 4)
    low, high = word(step, 5), word(step, 6)
    vectors = (width + 15) // 16
    tasks = word(step, 3) * vectors
    task, last = tasks * thread // threads, tasks * (thread + 1) // threads
    while task < last:
        row, first = task // vectors, task % vectors * 16
        stop = min(first + 16 * (last - task), 16 * vectors)
        task += (stop - first) // 16
        position = load_u32(positions + 4 * row)
        at = 4 * row * width
        whole = min(stop, width // 16 * 16)
        pairs = first + (whole - first) // 32 * 32
        for i in range(first, pairs, 32):  # in pairs: one dependency chain uses half of a core's throughput
            a, b = _gumbel(i, position, low, high), _gumbel(i + 16, position, low, high)
            store(y + at + 4 * i, load(x + at + 4 * i) + a)
            store(y + at + 4 * i + 64, load(x + at + 4 * i + 64) + b)
        if pairs < whole:
            store(y + at + 4 * pairs, load(x + at + 4 * pairs) + _gumbel(pairs, position, low, high))
        if whole < stop:
            value = load_part(x + at + 4 * whole, width - whole) + _gumbel(whole, position, low, high)
            store_part(y + at + 4 * whole, value, width - whole)


def dropout(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Scale kept elements, and set the rest to 0."""
    x, y, count = word(step, 0), word(step, 1), word(step, 3)
    first_key, second_key = load_u32(word(step, 2)), load_u32(word(step, 2) + 4)
    stream, threshold = word(step, 4), word(step, 5)
    factor, zero = splat(number(step, 6)), splat(f32(0.0))
    first, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        value = load(x + 4 * i) * factor
        store(y + 4 * i, select_kept(value, zero, i, stream, first_key, second_key, threshold))
    if whole < last:
        value = load_part(x + 4 * whole, last - whole) * factor
        value = select_kept(value, zero, whole, stream, first_key, second_key, threshold)
        store_part(y + 4 * whole, value, last - whole)


NORMAL_ARGUMENTS = ("x", "y", "key", "count", "stream", "first")
"""`first`: number of the first element."""


@kernel
def _normal(place, stream, low, high):
    """``√(-2 log u) cos(2π v)`` of the elements from `place` on."""
    radius = root(splat(f32(-2.0)) * log_of_normal(uniform(place, stream, low, high)))
    return radius * sin_quarter_turned(uniform_pair(place, stream, low, high) * splat(f32(2 * np.pi)), 1)


def normal(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Add standard normal noise, by the numbers of elements."""
    x, y, count = word(step, 0), word(step, 1), word(step, 3)
    low, high = load_u32(word(step, 2)), load_u32(word(step, 2) + 4)
    stream, start = word(step, 4), word(step, 5)
    first, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        store(y + 4 * i, load(x + 4 * i) + _normal(start + i, stream, low, high))
    if whole < last:
        value = load_part(x + 4 * whole, last - whole) + _normal(start + whole, stream, low, high)
        store_part(y + 4 * whole, value, last - whole)
