"""Panels opened for the register tiles, and single rows read back for embeddings.

The integer tile reads bytes with float32 scales (`unpack_bytes`); exact products with integer weights read float32
(`unpack_floats`). Both are made once for a panel and used for all rows of activations, out of the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from volumetric.kernels.cpu.emit import I32X, Emitter, constant
from volumetric.kernels.cpu.jit import intrinsic, kernel
from volumetric.kernels.cpu.matvec import opened_numbers, scales_at
from volumetric.kernels.cpu.memory import bits_float, half_value, load_f32, load_u8, load_u16, store_f32
from volumetric.kernels.cpu.panels import FORMATS
from volumetric.kernels.cpu.tiles import byte_block_bytes

_BY_NAME = {form.name: form for form in FORMATS.values()}

FORMAT_CODES = {name: code for code, name in enumerate(_BY_NAME)}
"""Format name → number, for kernels that choose at run time."""


@intrinsic
def unpack_bytes(typing_context: Any, name: Any, panel: Any, out: Any, units: Any) -> Any:
    """Integer panel of format `name` (compile-time) to a byte panel for `integer_tile`."""
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
        form = _BY_NAME[name.literal_value]
        with e.loop(args[3]) as unit:
            emit(e, form.name, e.at(args[1], e.b.mul(unit, constant(form.unit_bytes))), args[2], unit)
        return context.get_dummy_value()

    return types.void(name, types.int64, types.int64, types.int64), generate


def _emit_bytes(e: Emitter, name: str, unit: Any, out: Any, index: Any) -> None:
    vectors = 16 if name == "int8" else 8
    block_bytes = byte_block_bytes(_BY_NAME[name].zero)
    for block in range(2):
        here = e.at(out, e.b.mul(e.b.add(e.b.mul(index, constant(2)), constant(block)), constant(block_bytes)))
        for j in range(vectors // 2):
            lanes = e.load(e.at(unit, 64 * (vectors // 2 * block + j)), I32X, align=64)
            if name == "int8":
                e.store(e.at(here, 64 * j), lanes, align=64)
                continue
            e.store(e.at(here, 128 * j), e.b.and_(lanes, e.ints(0x0F0F0F0F)), align=64)
            upper = e.b.and_(e.b.lshr(lanes, e.ints(4)), e.ints(0x0F0F0F0F))
            e.store(e.at(here, 128 * j + 64), upper, align=64)
        after = e.at(unit, 64 * vectors + 32 * block)
        e.store(e.at(here, 8 * 64), scales_at(e, after), align=64)
        if name == "uint4":
            e.store(e.at(here, 9 * 64), scales_at(e, e.at(after, 64)), align=64)


def _emit_floats(e: Emitter, name: str, unit: Any, out: Any, index: Any) -> None:
    here = e.at(out, e.b.mul(index, constant(64 * 64)))
    for k, value in enumerate(opened_numbers(e, name, unit)):
        e.store(e.at(here, 64 * k), value, align=64)


@kernel
def _integer_number(panel, lane, k, vectors, zero, affine):
    """Number `k` of row `lane` of an integer panel."""
    unit = panel + (k // 64) * (vectors * 64 + 64 + (64 if affine else 0))
    j = k % 64
    after = unit + vectors * 64 + 32 * (j // 32) + 2 * lane
    if vectors == 16:
        code = load_u8(unit + (j // 4) * 64 + 4 * lane + j % 4)
    else:
        code = load_u8(unit + (j // 8) * 64 + 4 * lane + j % 4)
        code = code >> 4 if j % 8 >= 4 else code & 15
    value = half_value(load_u16(after)) * np.float32(code - zero)
    if affine:
        value += half_value(load_u16(after + 64))
    return value


@kernel
def read_row(code, panel, lane, k, scale, out):
    """Row `lane` of a panel of format number `code`, times `scale`, as `k` float32."""
    for j in range(k):
        if code == 0:
            value = load_f32(panel + 64 * j + 4 * lane)
        elif code == 1:
            value = half_value(load_u16(panel + 32 * j + 2 * lane))
        elif code == 2:
            value = bits_float(load_u16(panel + 64 * (j // 2) + 4 * lane + 2 * (j % 2)) << 16)
        elif code == 3:
            value = _integer_number(panel, lane, j, 16, 128, False)
        elif code == 4:
            value = _integer_number(panel, lane, j, 8, 8, False)
        else:
            value = _integer_number(panel, lane, j, 8, 0, True)
        store_f32(out + 4 * j, scale * value)
