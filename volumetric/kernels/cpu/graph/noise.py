"""Dropout: which elements stay is a hash of their place, as in `layers.noise`, 16 elements at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from volumetric.kernels.cpu.emit import I32, Emitter
from volumetric.kernels.cpu.graph.lanes import load_part, store_part
from volumetric.kernels.cpu.graph.shares import flat_share
from volumetric.kernels.cpu.memory import load_u32
from volumetric.kernels.cpu.simd import Floats, define, load, splat, store
from volumetric.kernels.cpu.steps import number, word

f32 = np.float32

DROPOUT_ARGUMENTS = ("x", "y", "key", "count", "stream", "threshold", "factor")
"""`threshold`: chance to be dropped in units of 2**-24; `factor` on what stays."""


def _mixed(e: Emitter, words: list[ir.Value]) -> list[ir.Value]:
    """Each word plus the product of two others, one after the other."""
    x, y, z, w = words
    x = e.b.add(x, e.b.mul(y, w))
    y = e.b.add(y, e.b.mul(z, x))
    z = e.b.add(z, e.b.mul(x, y))
    return [x, y, z, e.b.add(w, e.b.mul(y, z))]


@define(Floats, Floats, Floats, types.int64, types.int64, types.int64, types.int64, types.int64)
def where_kept(
    e: Emitter,
    value: ir.Value,
    rest: ir.Value,
    place: ir.Value,
    stream: ir.Value,
    first: ir.Value,
    second: ir.Value,
    threshold: ir.Value,
) -> ir.Value:
    """`value` in the lanes whose elements, from number `place` on, stay; `rest` in the others."""
    low = [e.splat(e.b.trunc(word, I32)) for word in (place, stream, first, second, threshold)]
    words = [e.b.add(low[0], e.lane_numbers()), *low[1:4]]
    words = [e.b.add(e.b.mul(word, e.ints(1664525)), e.ints(1013904223)) for word in words]
    words = _mixed(e, words)
    words = [e.b.xor(word, e.b.lshr(word, e.ints(16))) for word in words]
    hashed = e.b.lshr(_mixed(e, words)[0], e.ints(8))
    return e.b.select(e.b.icmp_unsigned(">=", hashed, low[4]), value, rest)


def dropout(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Scale what stays, and set the rest to 0."""
    x, y, count = word(step, 0), word(step, 1), word(step, 3)
    first_key, second_key = load_u32(word(step, 2)), load_u32(word(step, 2) + 4)
    stream, threshold = word(step, 4), word(step, 5)
    factor, zero = splat(number(step, 6)), splat(f32(0.0))
    first, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        value = load(x + 4 * i) * factor
        store(y + 4 * i, where_kept(value, zero, i, stream, first_key, second_key, threshold))
    if whole < last:
        value = load_part(x + 4 * whole, last - whole) * factor
        value = where_kept(value, zero, whole, stream, first_key, second_key, threshold)
        store_part(y + 4 * whole, value, last - whole)
