"""Vectors of 16 numbers as Numba values, so that kernels read like the formula they compute.

``Floats`` holds 16 float32 and ``Ints`` 16 int32. They live in registers: load, compute, store. The operators
``+ - *`` work on both, ``/`` on floats; a product and a sum may fuse, nothing else is reordered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from volumetric.devices.cpu.kernels.jit import intrinsic
from volumetric.devices.cpu.kernels.llvm_emitter import F32, F32X, I8, I32, I32X, I64, LANES, Emitter


class VectorType(types.Type):
    """Numba type of a vector with 16 lanes."""

    def __init__(self, name: str, lanes: ir.Type) -> None:
        self.lanes = lanes
        super().__init__(name=name)


Floats = VectorType("floats16", F32X)
Ints = VectorType("ints16", I32X)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, kind.lanes)


def _operator(symbol: Any, on_floats: str, on_ints: str | None) -> None:
    """Make `symbol` work on two vectors of the same type through the builder's methods of those names."""

    class Resolve(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and args[0] is args[1] and isinstance(args[0], VectorType):
                return signature(args[0], *args)
            return None

    register: Any = infer_global(symbol)
    register(Resolve)

    def floats(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return getattr(builder, on_floats)(*args, flags=("contract",))

    lower_builtin(symbol, Floats, Floats)(floats)
    if on_ints is None:
        return

    def ints(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return getattr(builder, on_ints)(*args)

    lower_builtin(symbol, Ints, Ints)(ints)


_operator(operator.add, "fadd", "add")
_operator(operator.iadd, "fadd", "add")
_operator(operator.sub, "fsub", "sub")
_operator(operator.isub, "fsub", "sub")
_operator(operator.mul, "fmul", "mul")
_operator(operator.imul, "fmul", "mul")
_operator(operator.truediv, "fdiv", None)


def define(result: types.Type, *args: types.Type) -> Callable[[Callable[..., ir.Value]], Any]:
    """Turn ``emit(emitter, *values)`` into an intrinsic of that signature."""

    def wrap(emit: Callable[..., ir.Value]) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
            value = emit(Emitter(builder), *values)
            return context.get_dummy_value() if result is types.void else value

        names = ", ".join(f"a{i}" for i in range(len(args)))
        scope: dict[str, Any] = {"made": (result(*args), generate)}
        exec(f"def {emit.__name__}(typing_context, {names}): return made", scope)
        function = scope[emit.__name__]
        function.__doc__ = emit.__doc__
        function.__module__ = emit.__module__
        return intrinsic(function)

    return wrap


@define(Floats, types.int64)
def load(e: Emitter, address: ir.Value) -> ir.Value:
    """16 float32 from `address`."""
    return e.load(address, F32X)


@define(Floats, types.int64)
def load_half(e: Emitter, address: ir.Value) -> ir.Value:
    """16 float16 from `address`."""
    return e.load_lanes(address, "float16")


@define(types.void, types.int64, Floats)
def store(e: Emitter, address: ir.Value, value: ir.Value) -> None:
    """Write 16 float32."""
    e.store(address, value)


@define(types.void, types.int64, Floats, types.int64)
def store_first(e: Emitter, address: ir.Value, value: ir.Value, count: ir.Value) -> None:
    """Write the first `count` lanes as float32."""
    slot = e.cell(F32X, value)
    lanes = e.b.ptrtoint(slot, I64)
    with e.loop(count) as lane:
        offset = e.b.mul(lane, ir.Constant(I64, 4))
        e.store(e.at(address, offset), e.load(e.at(lanes, offset), F32))


@define(types.void, types.int64, Floats)
def store_half(e: Emitter, address: ir.Value, value: ir.Value) -> None:
    """Write 16 float16, rounded to nearest even."""
    e.store(address, e.to_half(value), align=2)


@define(types.void, types.int64, Floats)
def store_brain(e: Emitter, address: ir.Value, value: ir.Value) -> None:
    """Write 16 bfloat16, rounded to nearest even; nan stays nan."""
    e.store(address, e.to_brain(value), align=2)


@define(Floats, Floats)
def as_brain(e: Emitter, value: ir.Value) -> ir.Value:
    """Each number rounded to bfloat16, as float32."""
    return e.b.bitcast(e.b.shl(e.b.zext(e.to_brain(value), I32X), e.ints(16)), F32X)


@define(Floats, Floats)
def as_half(e: Emitter, value: ir.Value) -> ir.Value:
    """Each number rounded to float16, as float32."""
    return e.from_half(e.to_half(value))


@define(types.void, types.int64, Floats, Floats)
def store_pairs(e: Emitter, address: ir.Value, first: ir.Value, second: ir.Value) -> None:
    """Write 16 pairs of bfloat16, as `Emitter.load_pairs` reads them."""
    low, high = (e.b.zext(e.to_brain(value), I32X) for value in (first, second))
    e.store(address, e.b.or_(low, e.b.shl(high, e.ints(16))))


@define(types.void, types.int64, Ints)
def store_bytes(e: Emitter, address: ir.Value, value: ir.Value) -> None:
    """Write the low byte of each of 16 integers."""
    e.store(address, e.b.trunc(value, ir.VectorType(I8, LANES)), align=1)


@define(Floats, types.float32)
def splat(e: Emitter, value: ir.Value) -> ir.Value:
    """The same number in all lanes."""
    return e.splat(value)


@define(Floats, Floats, Floats)
def largest(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Lane by lane the larger one."""
    return e.b.select(e.b.fcmp_ordered(">", a, b), a, b)


@define(Floats, Floats, Floats)
def smallest(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Lane by lane the smaller one."""
    return e.b.select(e.b.fcmp_ordered("<", a, b), a, b)


@define(Floats, Floats)
def magnitude(e: Emitter, a: ir.Value) -> ir.Value:
    """Absolute value."""
    return e.b.bitcast(e.b.and_(e.b.bitcast(a, I32X), e.ints(0x7FFFFFFF)), F32X)


def larger_magnitude(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit `larger_size`."""
    # Without its sign a float is ordered as its bits, with infinity above all numbers and NaN above infinity.
    sizes = [e.b.and_(e.b.bitcast(value, I32X), e.ints(0x7FFFFFFF)) for value in (a, b)]
    return e.b.bitcast(e.b.select(e.b.icmp_signed(">", *sizes), *sizes), F32X)


@define(Floats, Floats, Floats)
def larger_size(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Lane by lane the larger magnitude; unlike `largest` of two magnitudes, it is NaN where either is."""
    return larger_magnitude(e, a, b)


@define(Floats, Floats, Floats)
def with_sign(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Magnitude of `a`, sign of `b`."""
    size = e.b.and_(e.b.bitcast(a, I32X), e.ints(0x7FFFFFFF))
    sign = e.b.and_(e.b.bitcast(b, I32X), e.ints(0x80000000))
    return e.b.bitcast(e.b.or_(size, sign), F32X)


@define(Floats, Floats, Floats, Floats, Floats)
def where_less(e: Emitter, a: ir.Value, b: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    """`then` where ``a < b``, else `otherwise`."""
    return e.b.select(e.b.fcmp_ordered("<", a, b), then, otherwise)


@define(Floats, Floats, Floats, Floats, Floats)
def where_at_most(e: Emitter, a: ir.Value, b: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    """`then` where ``a <= b``, else `otherwise`."""
    return e.b.select(e.b.fcmp_ordered("<=", a, b), then, otherwise)


@define(Floats, Floats)
def positive(e: Emitter, a: ir.Value) -> ir.Value:
    """``a`` if above 0, else 0; unlike the larger of the two, it preserves NaN."""
    zero = e.floats(0.0)
    return e.b.select(e.b.fcmp_ordered("<", a, zero), zero, a)


@define(Floats, Floats)
def negative(e: Emitter, a: ir.Value) -> ir.Value:
    """``-a``."""
    return e.b.fsub(e.floats(-0.0), a, flags=("contract",))


@define(Floats, Floats, Floats, Floats)
def where_nan(e: Emitter, a: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    """`then` where `a` is NaN, else `otherwise`."""
    return e.b.select(e.b.fcmp_unordered("uno", a, a), then, otherwise)


@define(Floats, types.int64, Floats, Floats)
def first_lanes(e: Emitter, count: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    """`then` in the first `count` lanes, `otherwise` in the rest."""
    limit = e.splat(e.b.trunc(count, I32))
    return e.b.select(e.b.icmp_signed("<", e.lane_numbers(), limit), then, otherwise)


@define(Ints, Floats)
def nearest(e: Emitter, value: ir.Value) -> ir.Value:
    """Nearest integer, ties to even, of numbers below 2**22."""
    # Adding 1.5 * 2**23 leaves the integer in the low bits of the sum, on any machine and without a library call.
    shifted = e.b.fadd(value, e.floats(12582912.0))
    return e.b.sub(e.b.bitcast(shifted, I32X), e.ints(0x4B400000))


@define(Floats, Ints)
def as_floats(e: Emitter, value: ir.Value) -> ir.Value:
    """Integers as float32."""
    return e.to_float(value)


@define(Floats, Ints)
def as_bits(e: Emitter, value: ir.Value) -> ir.Value:
    """The bits of integers reinterpreted as floats, for storing."""
    return e.b.bitcast(value, F32X)


@define(Ints, Ints, types.int64)
def times(e: Emitter, a: ir.Value, factor: ir.Value) -> ir.Value:
    """Multiply all lanes by the same integer."""
    return e.b.mul(a, e.splat(e.b.trunc(factor, I32)))


@define(Ints, Ints, types.int64)
def shifted_right(e: Emitter, a: ir.Value, count: ir.Value) -> ir.Value:
    """Arithmetic shift of all lanes."""
    return e.b.ashr(a, e.splat(e.b.trunc(count, I32)))


@define(Floats, Floats, Floats)
def with_exponent(e: Emitter, a: ir.Value, n: ir.Value) -> ir.Value:
    """``a * 2**n`` for a normal number that stays one; `n` is a whole number to which 1.5 * 2**23 was added."""
    return e.b.bitcast(e.b.add(e.b.bitcast(a, I32X), e.b.shl(e.b.bitcast(n, I32X), e.ints(23))), F32X)


def _reduce(e: Emitter, value: ir.Value, join: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    return e.tree([e.b.extract_element(value, ir.Constant(I32, lane)) for lane in _bit_reversed()], join)


def _bit_reversed() -> list[int]:
    """Lane order in which pairwise joining becomes joining of register halves."""
    return [int(f"{lane:04b}"[::-1], 2) for lane in range(LANES)]


@define(types.float32, Floats)
def total(e: Emitter, value: ir.Value) -> ir.Value:
    """Sum of the lanes."""
    return _reduce(e, value, e.add)


@define(types.float32, Floats)
def peak(e: Emitter, value: ir.Value) -> ir.Value:
    """Largest lane."""
    return _reduce(e, value, lambda a, b: e.b.select(e.b.fcmp_ordered(">", a, b), a, b))


@define(types.float32, Floats)
def peak_size(e: Emitter, value: ir.Value) -> ir.Value:
    """Largest lane of magnitudes, NaN if any lane is."""
    bits = e.b.bitcast(value, I32X)
    return e.b.bitcast(_reduce(e, bits, lambda a, b: e.b.select(e.b.icmp_signed(">", a, b), a, b)), F32)
