"""Loads, stores, atomics and indirect calls on int64 addresses, for use inside kernels.

Addresses, rather than arrays, keep the kernels' signatures the same for every operation and free of reference counting.
Nothing checks bounds: the code that writes an address into a step must keep the memory alive.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from volumetric.devices.cpu.kernels.cpu_target import target
from volumetric.devices.cpu.kernels.jit import intrinsic
from volumetric.devices.cpu.kernels.llvm_emitter import F32, I8, I16, I32, I64, Emitter


def _loader(kind: ir.Type, result: types.Type, *, signed: bool = True) -> Any:
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            if not isinstance(kind, ir.IntType) or kind.width == 64:
                return value
            return builder.sext(value, I64) if signed else builder.zext(value, I64)

        return result(types.int64), generate

    return intrinsic(load)


def _storer(kind: ir.Type, accepted: types.Type) -> Any:
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            value = args[1]
            if isinstance(kind, ir.IntType) and kind.width < 64:
                value = builder.trunc(value, kind)
            builder.store(value, builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, accepted), generate

    return intrinsic(store)


load_i64 = _loader(I64, types.int64)
load_i32 = _loader(I32, types.int64)
load_u32 = _loader(I32, types.int64, signed=False)
load_u16 = _loader(I16, types.int64, signed=False)
load_u8 = _loader(I8, types.int64, signed=False)
load_f32 = _loader(F32, types.float32)
load_f64 = _loader(ir.DoubleType(), types.float64)
store_i64 = _storer(I64, types.int64)
store_i32 = _storer(I32, types.int64)
store_i16 = _storer(I16, types.int64)
store_i8 = _storer(I8, types.int64)
store_f32 = _storer(F32, types.float32)
store_f64 = _storer(ir.DoubleType(), types.float64)


@intrinsic
def float_bits(typing_context: Any, value: Any) -> Any:
    """The bits of a float32, as an integer."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.zext(builder.bitcast(args[0], I32), I64)

    return types.int64(types.float32), generate


@intrinsic
def half_value(typing_context: Any, bits: Any) -> Any:
    """The float16 with these bits, as float32."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        kind = ir.VectorType(I16, 4)
        lane = builder.insert_element(ir.Constant(kind, None), builder.trunc(args[0], I16), ir.Constant(I32, 0))
        return builder.extract_element(Emitter(builder).from_half(lane), ir.Constant(I32, 0))

    return types.float32(types.int64), generate


@intrinsic
def bits_float(typing_context: Any, bits: Any) -> Any:
    """The float32 with these bits."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.bitcast(builder.trunc(args[0], I32), F32)

    return types.float32(types.int64), generate


@intrinsic
def atomic_add(typing_context: Any, address: Any, value: Any) -> Any:
    """Atomically add to the int64 at `address`; returns the value before."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        pointer = builder.inttoptr(args[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], ordering="acq_rel")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def load_acquire(typing_context: Any, address: Any) -> Any:
    """The int64 at `address`; what another thread wrote before it stored that value is visible after."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load_atomic(builder.inttoptr(args[0], I64.as_pointer()), ordering="acquire", align=8)

    return types.int64(types.int64), generate


@intrinsic
def store_release(typing_context: Any, address: Any, value: Any) -> Any:
    """Store an int64 so that all earlier stores are visible to threads that acquire it."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        builder.store_atomic(args[1], builder.inttoptr(args[0], I64.as_pointer()), ordering="release", align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _fetcher(*, write: bool) -> Any:
    def fetch(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            Emitter(builder).fetch(args[0], write=write)
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return intrinsic(fetch)


fetch_to_read = _fetcher(write=False)
"""Prefetch the cache line at an address."""

fetch_to_write = _fetcher(write=True)
"""Prefetch the cache line at an address for writing."""


@intrinsic
def pause(typing_context: Any) -> Any:
    """Tell the core that it is spinning."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        if "sse2" in target().features:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        else:
            builder.fence("acquire")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def call_operation(typing_context: Any, function: Any, step: Any, thread: Any, threads: Any, control: Any) -> Any:
    """Call the compiled operation at address `function`."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate
