"""Unpack units of integer panels in registers: codes as bytes, scales and floors as floats.

`CodeLayout` (in `panels`) describes the layout; no code here is specific to a format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from volumetric.devices.cpu.kernels.llvm_emitter import F32X, I8, I8X64, I16, I32X, LANES, Emitter, constant
from volumetric.devices.cpu.kernels.panels import HEAD_UNITS, UNIT, CodeLayout, PanelFormat, SmallFloat

_QUARTER = ir.VectorType(I8, 16)
_ALL_ONES = 0x7F
"""Codes of eight bits without their sign."""


@dataclass(frozen=True, kw_only=True)
class PanelUnit:
    """One unit of a panel: its address, and the address of its head."""

    codes: CodeLayout
    address: Any
    head: Any


def unit_of(e: Emitter, form: PanelFormat, panel: Any, index: Any) -> PanelUnit:
    """Unit number `index` of the panel at address `panel`."""
    assert form.codes is not None
    address = e.at(panel, e.b.mul(index, constant(form.unit_bytes)))
    if not form.head_bytes:
        return PanelUnit(codes=form.codes, address=address, head=address)
    group = e.b.lshr(index, constant(HEAD_UNITS.bit_length() - 1))
    head = e.at(panel, e.b.mul(group, constant(HEAD_UNITS * form.unit_bytes + form.head_bytes)))
    past = e.at(e.b.mul(group, constant(form.head_bytes)), form.head_bytes)
    return PanelUnit(codes=form.codes, address=e.at(address, past), head=head)


def plane_vector(e: Emitter, unit: PanelUnit, plane: int, block: int, vector: int) -> ir.Value:
    """A vector of plane number `plane`, of block 0 or 1."""
    bits = unit.codes.planes
    return e.load(e.at(unit.address, 64 * (2 * sum(bits[:plane]) + bits[plane] * block + vector)), I32X, align=64)


def code_bytes(e: Emitter, unit: PanelUnit, block: int, step: int) -> ir.Value:
    """Codes of the four k from ``32 block + 4 step`` on, a byte each; values + 128 if there is a table."""
    codes, low, joined = unit.codes, 0, None
    for plane, bits in enumerate(codes.planes):
        per = 8 // bits
        lanes = plane_vector(e, unit, plane, block, step // per)
        shift = low - bits * (step % per)
        if shift:
            lanes = e.b.shl(lanes, e.ints(shift)) if shift > 0 else e.b.lshr(lanes, e.ints(-shift))
        if bits < 8:
            lanes = e.b.and_(lanes, e.ints((((1 << bits) - 1) << low) * 0x01010101))
        joined = lanes if joined is None else e.b.or_(joined, lanes)
        low += bits
    assert joined is not None
    return joined if codes.table is None else _table_values(e, codes.table, joined)


def _table_values(e: Emitter, table: tuple[int, ...], indices: ir.Value) -> ir.Value:
    """Look up every byte below the length of `table`, 16 at most; returns the values + 128."""
    values = [value + 128 for value in table] + [0] * (16 - len(table))
    raw = e.b.bitcast(indices, I8X64)

    def parts(size: int, look: Any) -> ir.Value:
        """Apply `look` to parts of `size` bytes."""
        vectors = []
        for at in range(0, 64, size):
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), size), list(range(at, at + size)))
            vectors.append(look(e.b.shuffle_vector(raw, ir.Constant(raw.type, ir.Undefined), lanes)))
        return e.tree(vectors, concatenate)

    def concatenate(a: ir.Value, b: ir.Value) -> ir.Value:
        size = 2 * a.type.count
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), size), list(range(size)))
        return e.b.shuffle_vector(a, b, lanes)

    def constants(size: int) -> ir.Constant:
        return ir.Constant(ir.VectorType(I8, size), values * (size // 16))

    if e.target.dot == "vnni512" or {"avx512f", "avx512bw"} <= e.target.features:
        looked = e.call("llvm.x86.avx512.pshuf.b.512", I8X64, [constants(64), raw])
    elif e.target.dot in ("avx2", "vnni256"):
        wide = ir.VectorType(I8, 32)
        looked = parts(32, lambda piece: e.call("llvm.x86.avx2.pshuf.b", wide, [constants(32), piece]))
    elif e.target.dot == "neon":
        name = "llvm.aarch64.neon.tbl1.v16i8"
        looked = parts(16, lambda piece: e.call(name, _QUARTER, [constants(16), piece]))
    else:
        looked = ir.Constant(I8X64, [values[0]] * 64)
        for i, value in enumerate(values[1:], 1):
            here = e.b.icmp_signed("==", raw, ir.Constant(I8X64, [i] * 64))
            looked = e.b.select(here, ir.Constant(I8X64, [value] * 64), looked)
    return e.b.bitcast(looked, I32X)


def scale_vectors(e: Emitter, unit: PanelUnit, block: int) -> list[ir.Value]:
    """Scales of block 0 or 1, group by group."""
    codes = unit.codes
    per = codes.groups // 2
    return [_scale(e, unit, block * per + group) for group in range(per)]


def _scale(e: Emitter, unit: PanelUnit, group: int) -> ir.Value:
    codes, at = unit.codes, e.at(unit.address, unit.codes.scales_at)
    if codes.scales == "float16":
        return halves_at(e, e.at(at, 32 * group))
    if codes.scales == "float32":
        return e.load(e.at(at, 64 * group), F32X, align=64)
    if codes.scales == "bfloat16":
        wide = e.b.zext(e.load(e.at(at, 32 * group), ir.VectorType(I16, LANES), align=2), I32X)
        return e.b.bitcast(e.b.shl(wide, e.ints(16)), F32X)
    step = halves_at(e, unit.head)
    if codes.scales == "head":
        return step
    small = e.load(e.at(at, LANES * group), _QUARTER, align=1)
    if codes.scales == "int8":
        return e.mul(e.to_float(e.b.sext(small, I32X)), step)
    return e.mul(e.to_float(e.b.and_(e.b.zext(small, I32X), e.ints(15))), step)


def floor_vectors(e: Emitter, unit: PanelUnit, block: int) -> list[ir.Value]:
    """Floors of block 0 or 1, group by group; none if the format has none."""
    codes = unit.codes
    if codes.floors == "none":
        return []
    per = codes.groups // 2
    return [_floor(e, unit, block * per + group) for group in range(per)]


def _floor(e: Emitter, unit: PanelUnit, group: int) -> ir.Value:
    codes, at = unit.codes, e.at(unit.address, unit.codes.floors_at)
    if codes.floors == "float16":
        return halves_at(e, e.at(at, 32 * group))
    floor = halves_at(e, e.at(unit.head, 32))
    if codes.floors == "uint8":
        small = e.b.zext(e.load(e.at(at, LANES * group), _QUARTER, align=1), I32X)
    else:
        both = e.load(e.at(unit.address, codes.scales_at + LANES * group), _QUARTER, align=1)
        small = e.b.lshr(e.b.zext(both, I32X), e.ints(4))
    return e.mul(e.to_float(small), floor)


def halves_at(e: Emitter, address: ir.Value) -> ir.Value:
    """16 float16 numbers as floats."""
    return e.from_half(e.load(address, ir.VectorType(I16, LANES), align=2))


def numbers(e: Emitter, unit: PanelUnit) -> list[ir.Value]:
    """The 64 numbers of each of 16 rows, as float32 vectors, bit-identical to the codec.

    Except float8 without ∞: if one of 32 numbers is NaN, all are.
    """
    codes, vectors = unit.codes, []
    zero = e.ints(codes.zero)
    for block in range(2):
        scales, floors = scale_vectors(e, unit, block), floor_vectors(e, unit, block)
        if codes.floats is not None and codes.floats.special == _ALL_ONES:
            scales = [_spread_nan(e, unit, block, scale) for scale in scales]
        for k in range(UNIT // 2):
            quad = code_bytes(e, unit, block, k // 4)
            if codes.floats is not None:
                vectors.append(e.mul(_small_floats(e, codes.floats, quad, k % 4), scales[k // codes.group]))
                continue
            code = e.b.and_(e.b.lshr(quad, e.ints(8 * (k % 4))), e.ints(0xFF))
            value = e.mul(e.to_float(e.b.sub(code, zero)), scales[k // codes.group])
            vectors.append(e.add(value, floors[k // codes.group]) if floors else value)
    return vectors


def _small_floats(e: Emitter, kind: SmallFloat, quad: ir.Value, byte: int) -> ir.Value:
    """The floats in one byte of every lane: bits moved to float32's positions, times a power of two for the bias.

    Subnormal codes are subnormal in float32, too, and the product normalises them. NaN is detected here if the format
    has ∞; otherwise by `_spread_nan`.
    """
    bits = e.b.shl(quad, e.ints(24 - 8 * byte)) if byte < 3 else quad
    up = 23 - kind.mantissa
    # The sign fills the bits above the exponent; the mask keeps one of them.
    bits = e.b.and_(e.b.ashr(bits, e.ints(24 - up)), e.ints(0x80000000 | 0x7F << up))
    value = e.mul(e.b.bitcast(bits, F32X), e.floats(2.0**kind.power))
    if kind.special == _ALL_ONES:
        return value
    special = e.b.icmp_signed(">=", e.b.and_(bits, e.ints(0x7FFFFFFF)), e.ints(kind.special << up))
    return e.b.select(special, e.b.bitcast(e.b.or_(bits, e.ints(0x7F800000)), F32X), value)


def _spread_nan(e: Emitter, unit: PanelUnit, block: int, scale: ir.Value) -> ir.Value:
    """The scale of a group of 32, NaN in lanes with a NaN code, so that every sum of them is NaN."""
    carries = None
    for vector in range(UNIT // 8):
        sizes = e.b.and_(plane_vector(e, unit, 0, block, vector), e.ints(0x7F7F7F7F))
        carried = e.b.add(sizes, e.ints(0x01010101))
        carries = carried if carries is None else e.b.or_(carries, carried)
    marks = e.b.and_(carries, e.ints(0x80808080))
    return e.b.select(e.b.icmp_signed("==", marks, e.ints(0)), scale, e.floats(float("nan")))
