"""Read back one row of an integer panel, for embeddings."""

from __future__ import annotations

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import (
    bits_float,
    float_bits,
    half_value,
    load_f32,
    load_u8,
    load_u16,
    store_f32,
)
from volumetric.devices.cpu.kernels.panels import BY_NAME, FLOOR_KINDS, HEAD_UNITS, SCALE_KINDS, PanelFormat


def _format_numbers(form: PanelFormat) -> tuple[int, ...]:
    """Facts about a format that `read_codes` needs, as numbers."""
    codes = form.codes
    if codes is None:
        return (0,) * 6
    low, high = (*codes.planes, 0)[:2]
    return low, high, codes.group, SCALE_KINDS.index(codes.scales), FLOOR_KINDS.index(codes.floors), codes.zero


def _floats(form: PanelFormat) -> tuple[int, int, int]:
    """`SmallFloat` as numbers: bits to shift a code left, power, special; zeros for integer codes."""
    small = None if form.codes is None else form.codes.floats
    return (0, 0, 0) if small is None else (23 - small.mantissa, small.power, small.special)


def _places(form: PanelFormat) -> tuple[int, ...]:
    """Byte offsets of the parts of a unit."""
    codes = form.codes
    return (0,) * 4 if codes is None else (codes.scales_at, codes.floors_at, codes.unit_bytes, codes.head_bytes)


def _table(form: PanelFormat) -> tuple[int, ...]:
    """`Codes.table`, padded to 16; zeros if there is none."""
    table = (form.codes and form.codes.table) or ()
    return (*table, *(0,) * (16 - len(table)))


FACTS = tuple(_format_numbers(form) for form in BY_NAME.values())
SMALL_FLOATS = tuple(_floats(form) for form in BY_NAME.values())
PLACES = tuple(_places(form) for form in BY_NAME.values())
TABLES = tuple(_table(form) for form in BY_NAME.values())


@kernel
def _bits_of(plane, lane, k, bits):
    """The bits of number `k` of a unit in one plane."""
    per = 8 // bits
    quad = k // 4
    byte = load_u8(plane + 64 * (quad // per) + 4 * lane + k % 4)
    return (byte >> (bits * (quad % per))) & ((1 << bits) - 1)


@kernel
def _small_float(code, up, power, special):
    """The value of an eight-bit float code."""
    size = code & 127
    sign = (code & 128) << 24
    if size >= special:
        return bits_float(0x7F800000 | (size << up) | sign)
    mantissa = 23 - up
    exponent = size >> mantissa
    if exponent > 0:
        return bits_float(((size << up) + (power << 23)) | sign)
    value = bits_float((power + 1 - mantissa) << 23) * np.float32(size)
    return bits_float(float_bits(value) | sign)


@kernel
def _as_signed(byte):
    return byte - 256 if byte >= 128 else byte


@kernel
def _scale_of_group(at, group, lane, kind, step):
    """Scale number `group`, of kind number `kind`."""
    if kind == 0:
        return half_value(load_u16(at + 32 * group + 2 * lane))
    if kind == 1:
        return bits_float(load_u16(at + 32 * group + 2 * lane) << 16)
    if kind == 4:
        return step
    if kind == 5:
        return load_f32(at + 64 * group + 4 * lane)
    byte = load_u8(at + 16 * group + lane)
    return step * np.float32(_as_signed(byte) if kind == 2 else byte & 15)


@kernel
def _floor_of_group(unit, group, lane, kind, scales_at, floors_at, step):
    """Floor number `group`, of kind number `kind`."""
    if kind == 0:
        return np.float32(0.0)
    if kind == 1:
        return half_value(load_u16(unit + floors_at + 32 * group + 2 * lane))
    if kind == 2:
        return step * np.float32(load_u8(unit + floors_at + 16 * group + lane))
    return step * np.float32(load_u8(unit + scales_at + 16 * group + lane) >> 4)


@kernel
def read_codes(code, panel, lane, k, scale, out):
    """Row `lane` of a panel of format number `code`, times `scale`, as `k` float32."""
    low, high, group, scale_kind, floor_kind, zero = FACTS[code]
    scales_at, floors_at, unit_bytes, head_bytes = PLACES[code]
    up, power, special = SMALL_FLOATS[code]
    for start in range(0, k, group):
        number = start // 64
        head = panel + number // HEAD_UNITS * (HEAD_UNITS * unit_bytes + head_bytes)
        unit = panel + number * unit_bytes + (number // HEAD_UNITS + 1) * head_bytes
        step = half_value(load_u16(head + 2 * lane))
        floor_step = half_value(load_u16(head + 32 + 2 * lane))
        place = start % 64 // group
        factor = _scale_of_group(unit + scales_at, place, lane, scale_kind, step)
        floor = _floor_of_group(unit, place, lane, floor_kind, scales_at, floors_at, floor_step)
        for j in range(start, min(start + group, k)):
            value = _bits_of(unit, lane, j % 64, low)
            if high != 0:
                value |= _bits_of(unit + 128 * low, lane, j % 64, high) << low
            if zero == 128 and low < 8:
                value = TABLES[code][value] + zero
            # One product, one sum: values that the codec rounds once are rounded once here.
            small = np.float32(value - zero) if up == 0 else _small_float(value, up, power, special)
            number_of = factor * small
            if floor_kind != 0:
                number_of += floor
            store_f32(out + 4 * j, scale * number_of)
