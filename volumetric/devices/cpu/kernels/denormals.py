"""Subnormal numbers, below 1.2e-38: how a thread's arithmetic treats them.

A processor computes with them a hundred times more slowly than with others. Gradients that fade over many time steps
pass through them on their way to 0, so graphs may request that they count as 0, as in XLA and TensorFlow.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from volumetric.devices.cpu.kernels.cpu_target import target
from volumetric.devices.cpu.kernels.jit import intrinsic, kernel
from volumetric.devices.cpu.kernels.llvm_emitter import I8, I32, I64
from volumetric.devices.cpu.kernels.memory_access import load_i64
from volumetric.devices.cpu.kernels.step_words import FLUSH_WORD

_X86 = 0x8040
"""Results are flushed (bit 15), operands count as 0 (bit 6): Intel's manual, volume 1, section 10.2.3."""
_ARM = 1 << 24
"""FZ of FPCR."""
_IS_X86 = "sse2" in target().features
_IS_ARM = platform.machine().lower() in {"arm64", "aarch64"}


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> Any:
    kind = ir.FunctionType(result, [value.type for value in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


@intrinsic
def _mode(typing_context: Any) -> Any:
    """Return the floating-point control word of the thread."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        if _IS_X86:
            place = cgutils.alloca_once(builder, I32)
            _call(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), builder.bitcast(place, I8.as_pointer()))
            return builder.zext(builder.load(place), I64)
        return _call(builder, "llvm.aarch64.get.fpcr", I64) if _IS_ARM else ir.Constant(I64, 0)

    return types.int64(), generate


@intrinsic
def _set_mode(typing_context: Any, mode: Any) -> Any:
    """Write the control word."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        if _IS_X86:
            place = cgutils.alloca_once(builder, I32)
            builder.store(builder.trunc(args[0], I32), place)
            _call(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), builder.bitcast(place, I8.as_pointer()))
        elif _IS_ARM:
            _call(builder, "llvm.aarch64.set.fpcr", ir.VoidType(), args[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


_FLUSHING = _X86 if _IS_X86 else _ARM


@kernel
def flush_denormals(control):
    """Flush subnormal numbers to 0 on this thread, if the call asks for it; returns what `restore_denormals` takes."""
    mode = _mode()
    if load_i64(control + 8 * FLUSH_WORD) != 0:
        _set_mode(mode | _FLUSHING)
    return mode


@kernel
def restore_denormals(control, mode):
    """Restore the thread's previous mode."""
    if load_i64(control + 8 * FLUSH_WORD) != 0:
        _set_mode(mode)
