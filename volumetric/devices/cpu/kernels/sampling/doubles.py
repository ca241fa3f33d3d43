"""Vectors of 16 float64, like those of float32 in `devices.cpu.kernels.simd`, and packing of lanes.

Also operations on two float32 that round once each, which the compiler may neither fuse nor rewrite.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import lower_builtin

from volumetric.devices.cpu.kernels.llvm_emitter import F32X, I32, I32X, I64, LANES, Emitter, constant
from volumetric.devices.cpu.kernels.masked_load import mask_of_first, masked_load
from volumetric.devices.cpu.kernels.simd import Floats, VectorType, define

F64 = ir.DoubleType()
F64X = ir.VectorType(F64, LANES)
I64X = ir.VectorType(I64, LANES)
_HALF = LANES // 2
ROUNDER = 1.5 * 2.0**52
"""Added to a number below 2**51, it leaves the nearest integer in the low bits of the sum."""
ROUNDER32 = 1.5 * 2.0**23
"""The same for float32, below 2**22."""

Doubles = VectorType("doubles16", F64X)


def _operator(symbol: Any, method: str) -> None:
    def lower(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return getattr(builder, method)(*args, flags=("contract",))

    lower_builtin(symbol, Doubles, Doubles)(lower)


_operator(operator.add, "fadd")
_operator(operator.iadd, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")


def _splat(e: Emitter, value: ir.Value) -> ir.Value:
    one = e.b.insert_element(ir.Constant(F64X, ir.Undefined), value, ir.Constant(I32, 0))
    return e.b.shuffle_vector(one, ir.Constant(F64X, ir.Undefined), e.ints(0))


def _zero() -> ir.Constant:
    return ir.Constant(F64X, [0.0] * LANES)


@define(Doubles, types.float64)
def splat64(e: Emitter, value: ir.Value) -> ir.Value:
    """The same number in all lanes."""
    return _splat(e, value)


@define(Doubles, types.int64)
def load64(e: Emitter, address: ir.Value) -> ir.Value:
    """16 float64 from `address`."""
    return e.load(address, F64X, align=8)


@define(types.void, types.int64, Doubles)
def store64(e: Emitter, address: ir.Value, value: ir.Value) -> None:
    """Write 16 float64."""
    e.store(address, value, align=8)


@define(Doubles, Floats)
def widen(e: Emitter, value: ir.Value) -> ir.Value:
    """16 float32 as float64."""
    return e.b.fpext(value, F64X)


@define(types.float64, Doubles)
def total64(e: Emitter, value: ir.Value) -> ir.Value:
    """Sum of the lanes, by halves, so that the order is the same on every machine."""
    return e.tree(
        [e.b.extract_element(value, ir.Constant(I32, int(f"{lane:04b}"[::-1], 2))) for lane in range(LANES)], e.b.fadd
    )


@define(Doubles, Doubles, Doubles)
def times_power(e: Emitter, value: ir.Value, rounded: ir.Value) -> ir.Value:
    """``value · 2**n`` where `rounded` is ``n + ROUNDER``; the result must be a normal number."""
    exponent = e.b.shl(e.b.bitcast(rounded, I64X), ir.Constant(I64X, [52] * LANES))
    return e.b.bitcast(e.b.add(e.b.bitcast(value, I64X), exponent), F64X)


@define(Floats, Floats, Floats)
def times_power32(e: Emitter, value: ir.Value, rounded: ir.Value) -> ir.Value:
    """``value · 2**n`` where `rounded` is ``n + ROUNDER32``; the result must be a normal number."""
    exponent = e.b.shl(e.b.bitcast(rounded, I32X), e.ints(23))
    return e.b.bitcast(e.b.add(e.b.bitcast(value, I32X), exponent), F32X)


@define(Doubles, Doubles, Doubles, Doubles)
def zero_below(e: Emitter, at: ir.Value, least: ir.Value, value: ir.Value) -> ir.Value:
    """`value` where ``at >= least``, else 0, even where `value` is NaN."""
    return e.b.select(e.b.fcmp_ordered(">=", at, least), value, _zero())


def _count(e: Emitter, mask: ir.Value) -> ir.Value:
    bits = ir.IntType(mask.type.count)
    return e.b.zext(e.b.ctpop(e.b.bitcast(mask, bits)), I64)


@define(types.int64, Doubles, Doubles)
def count_above(e: Emitter, value: ir.Value, pivot: ir.Value) -> ir.Value:
    """How many lanes are above `pivot`."""
    return _count(e, e.b.fcmp_ordered(">", value, pivot))


@define(types.int64, Doubles, Doubles)
def count_equal(e: Emitter, value: ir.Value, pivot: ir.Value) -> ir.Value:
    """How many lanes are `pivot`."""
    return _count(e, e.b.fcmp_ordered("==", value, pivot))


@define(Doubles, Doubles, Doubles)
def only_above(e: Emitter, value: ir.Value, pivot: ir.Value) -> ir.Value:
    """The lanes above `pivot`, else 0."""
    return e.b.select(e.b.fcmp_ordered(">", value, pivot), value, _zero())


def _store_packed(e: Emitter, address: ir.Value, value: ir.Value, mask: ir.Value, suffix: str) -> ir.Value:
    """Write the lanes of `mask` contiguously, and anything after them; returns the address after the lanes."""
    rest = ir.Constant(value.type, ir.Undefined)
    name = f"llvm.experimental.vector.compress.v{value.type.count}{suffix}"
    e.store(address, e.call(name, value.type, [value, mask, rest]), align=4)
    size = 8 if suffix == "f64" else 4
    return e.b.add(address, e.b.mul(_count(e, mask), constant(size)))


def _pack64(sign: str) -> Callable[[Emitter, ir.Value, ir.Value, ir.Value], ir.Value]:
    def pack(e: Emitter, address: ir.Value, value: ir.Value, pivot: ir.Value) -> ir.Value:
        mask = e.b.fcmp_ordered(sign, value, pivot)
        for first in (0, _HALF):  # the widest that machines compress at once
            lanes = ir.Constant(ir.VectorType(I32, _HALF), list(range(first, first + _HALF)))
            value_half, mask_half = (e.b.shuffle_vector(part, part, lanes) for part in (value, mask))
            address = _store_packed(e, address, value_half, mask_half, "f64")
        return address

    return pack


@define(types.int64, types.int64, Doubles, Doubles)
def pack_above(e: Emitter, address: ir.Value, value: ir.Value, pivot: ir.Value) -> ir.Value:
    """Write the lanes above `pivot` contiguously, with room for 16; returns the address after them."""
    return _pack64(">")(e, address, value, pivot)


@define(types.int64, types.int64, Doubles, Doubles)
def pack_below(e: Emitter, address: ir.Value, value: ir.Value, pivot: ir.Value) -> ir.Value:
    """Write the lanes below `pivot` contiguously, with room for 16; returns the address after them."""
    return _pack64("<")(e, address, value, pivot)


@define(types.int64, types.int64, types.int64, Floats, Floats, types.int64)
def pack_at_least(
    e: Emitter, values: ir.Value, numbers: ir.Value, value: ir.Value, least: ir.Value, first: ir.Value
) -> ir.Value:
    """Write the lanes ≥ `least` contiguously, and their numbers from `first` on (int32), with room for 16.

    Returns their count.
    """
    mask = e.b.fcmp_ordered(">=", value, least)
    _store_packed(e, values, value, mask, "f32")
    _store_packed(e, numbers, e.b.add(e.splat(e.b.trunc(first, I32)), e.lane_numbers()), mask, "i32")
    return _count(e, mask)


@define(types.int64, Floats, Floats)
def count_at_least(e: Emitter, value: ir.Value, least: ir.Value) -> ir.Value:
    """How many lanes are `least` or more."""
    return _count(e, e.b.fcmp_ordered(">=", value, least))


@define(Floats, types.int64, types.int64, types.float32)
def load_first(e: Emitter, address: ir.Value, count: ir.Value, rest: ir.Value) -> ir.Value:
    """The first `count` (0 to 16, or beyond) numbers at `address`, then `rest`; touches no other memory."""
    return masked_load(e, address, mask_of_first(e, count), e.splat(rest))


@define(types.float32, types.float32, types.float32)
def plus(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """``a + b``."""
    return e.b.fadd(a, b)


@define(types.float32, types.float32, types.float32)
def minus(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """``a - b``."""
    return e.b.fsub(a, b)


@define(types.float32, types.float32, types.float32)
def times(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """``a · b``."""
    return e.b.fmul(a, b)


@define(types.float32, types.float32, types.float32)
def over(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """``a / b``."""
    return e.b.fdiv(a, b)
