"""Panels unpacked for the register tiles, and single rows read back for embeddings.

The integer tile reads bytes with float32 scales (`unpack_bytes`); exact products with integer weights read float32
(`unpack_floats`). Each panel is unpacked once and used for all rows of activations, from the cache.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.blocks.read_codes import read_codes
from volumetric.devices.cpu.kernels.blocks.unpack_codes import (
    PanelUnit,
    code_bytes,
    floor_vectors,
    numbers,
    scale_vectors,
    unit_of,
)
from volumetric.devices.cpu.kernels.jit import intrinsic, kernel
from volumetric.devices.cpu.kernels.llvm_emitter import Emitter, constant
from volumetric.devices.cpu.kernels.memory_access import bits_float, half_value, load_f32, load_u16, store_f32
from volumetric.devices.cpu.kernels.panel_microkernels import byte_block_bytes
from volumetric.devices.cpu.kernels.panels import BY_NAME

FORMAT_CODES = {name: code for code, name in enumerate(BY_NAME)}
"""Format name → number, for kernels that choose at run time."""


@intrinsic
def unpack_bytes(typing_context: Any, name: Any, panel: Any, out: Any, units: Any) -> Any:
    """Integer panel of format `name` (compile-time) to a byte panel for the integer tile."""
    return _unpacker(_emit_bytes, name)


@intrinsic
def unpack_floats(typing_context: Any, name: Any, panel: Any, out: Any, units: Any) -> Any:
    """Integer panel of format `name` (compile-time) to vectors of 16 float32, one for each k."""
    return _unpacker(_emit_floats, name)


def _unpacker(emit: Any, name: Any) -> Any:
    if not isinstance(name, types.StringLiteral):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        e = Emitter(builder)
        form = BY_NAME[name.literal_value]
        with e.loop(args[3]) as index:
            emit(e, unit_of(e, form, args[1], index), args[2], index)
        return context.get_dummy_value()

    return types.void(name, types.int64, types.int64, types.int64), generate


def _emit_bytes(e: Emitter, unit: PanelUnit, out: Any, index: Any) -> None:
    block_bytes = byte_block_bytes(unit.codes.zero, unit.codes.group)
    for block in range(2):
        here = e.at(out, e.b.mul(e.b.add(e.b.mul(index, constant(2)), constant(block)), constant(block_bytes)))
        for step in range(8):
            e.store(e.at(here, 64 * step), code_bytes(e, unit, block, step), align=64)
        for i, value in enumerate(scale_vectors(e, unit, block) + floor_vectors(e, unit, block)):
            e.store(e.at(here, 64 * (8 + i)), value, align=64)


def _emit_floats(e: Emitter, unit: PanelUnit, out: Any, index: Any) -> None:
    here = e.at(out, e.b.mul(index, constant(64 * 64)))
    for k, value in enumerate(numbers(e, unit)):
        e.store(e.at(here, 64 * k), value, align=64)


@kernel
def read_row(code, panel, lane, k, scale, out):
    """Row `lane` of a panel of format number `code`, times `scale`, as `k` float32."""
    if code >= 3:
        read_codes(code, panel, lane, k, scale, out)
        return
    for j in range(k):
        if code == 0:
            value = load_f32(panel + 64 * j + 4 * lane)
        elif code == 1:
            value = half_value(load_u16(panel + 32 * j + 2 * lane))
        else:
            value = bits_float(load_u16(panel + 64 * (j // 2) + 4 * lane + 2 * (j % 2)) << 16)
        store_f32(out + 4 * j, scale * value)
