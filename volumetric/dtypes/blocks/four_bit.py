"""IQ4_NL, IQ4_XS and MXFP4: 4-bit codes that index a table of 16 unevenly spaced values.

Layouts: ``block_iq4_nl`` and so on in ggml's ``ggml-common.h``; MXFP4 is that of the OCP Microscaling Formats
specification 1.0, with numbers doubled and scales halved so that the table holds integers.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from volumetric.base._typing import F32Array
from volumetric.dtypes.blocks.format import (
    BlockFormat,
    Bytes,
    DeviceLayout,
    Fields,
    half_bytes,
    halves,
    packed_planes,
    planes,
)
from volumetric.dtypes.blocks.scale_search import (
    columns,
    default_importance,
    divide_or_zero,
    nearest_index,
    stored_half,
    table_scales,
)
from volumetric.dtypes.registry import parse_dtype

_CURVE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _split_iq4_nl(blocks: Bytes) -> Fields:
    """float16 step; 16 bytes, elements j and j + 16 in byte j."""
    return Fields(codes=planes(blocks[:, 2:], 4, 16), step=halves(blocks, 0))


def _split_iq4_xs(blocks: Bytes) -> Fields:
    """float16 step; two high bits of 8 scales; 4 bytes of their low bits, two each; 128 bytes of codes."""
    high = planes(blocks[:, 2:4], 2, 1)
    scales = planes(blocks[:, 4:8], 4, 1) | (high << np.uint8(4))
    return Fields(codes=planes(blocks[:, 8:], 4, 16), step=halves(blocks, 0), scales=scales.view(np.int8) - np.int8(32))


def _split_mxfp4(blocks: Bytes) -> Fields:
    """One byte e for a scale of 2**(e − 127), halved here; 16 bytes of codes."""
    return Fields(codes=planes(blocks[:, 1:], 4, 16), step=_power(blocks[:, 0]))


def _curve_scales(x: F32Array, importance: F32Array | None) -> F32Array:
    weights = default_importance(x, 32) if importance is None else importance
    return table_scales(columns(x, 32), columns(weights, 32), _CURVE, range(-7, 8))


def _fit_iq4_nl(x: F32Array, importance: F32Array | None) -> Fields:
    step, scale = stored_half(_curve_scales(x, importance))
    return Fields(codes=nearest_index(divide_or_zero(x, scale[:, None]), _CURVE), step=step)


def _join_iq4_nl(fields: Fields) -> Bytes:
    return np.concatenate([half_bytes(fields.step), packed_planes(fields.codes, 4, 16)], axis=1)


def _fit_iq4_xs(x: F32Array, importance: F32Array | None) -> Fields:
    group_scales = _curve_scales(x, importance).reshape(-1, 8)
    peak = np.take_along_axis(group_scales, np.abs(group_scales).argmax(axis=1)[:, None], axis=1)[:, 0]
    step, whole = stored_half(peak / np.float32(-32))
    scales = np.clip(np.rint(divide_or_zero(group_scales, whole[:, None])), -32, 31)
    each = np.repeat(scales * whole[:, None], 32, axis=1)
    return Fields(codes=nearest_index(divide_or_zero(x, each), _CURVE), step=step, scales=scales.astype(np.int8))


def _join_iq4_xs(fields: Fields) -> Bytes:
    assert fields.scales is not None
    biased = (fields.scales + np.int8(32)).view(np.uint8)
    high, low = packed_planes(biased >> np.uint8(4), 2, 1), packed_planes(biased, 4, 1)
    return np.concatenate([half_bytes(fields.step), high, low, packed_planes(fields.codes, 4, 16)], axis=1)


def _power(e: Bytes) -> np.ndarray:
    """2**(e − 128) as bfloat16: its exponent is e − 1; below that the numbers are subnormal and shift instead."""
    wide = e.astype(np.uint16)
    bits = np.where(wide < 2, np.uint16(0x20) << wide, (np.maximum(wide, 1) - np.uint16(1)) << np.uint16(7))
    return bits.astype(np.uint16).view(ml_dtypes.bfloat16)


def _fit_mxfp4(x: F32Array, importance: F32Array | None) -> Fields:
    """The specification's scale, 2**(⌊log₂ peak⌋ − 2), and the nearest numbers; importance has no effect."""
    peak = np.abs(x).max(axis=1)
    exponent = np.where(peak > 0, np.frexp(peak)[1] - 3, -127)
    e = np.clip(exponent + 127, 0, 254).astype(np.uint8)
    scale = np.ldexp(np.float32(1), e.astype(np.int32) - 128)
    size = nearest_index((np.abs(x) / scale[:, None]).astype(np.float32), _E2M1[:8])
    return Fields(codes=size | (np.signbit(x).view(np.uint8) << np.uint8(3)), step=_power(e))


def _join_mxfp4(fields: Fields) -> Bytes:
    bits = fields.step.view(np.uint16)
    e = np.where(bits < 0x80, bits >> np.uint16(6), (bits >> np.uint16(7)) + np.uint16(1)).astype(np.uint8)
    return np.concatenate([e[:, None], packed_planes(fields.codes, 4, 16)], axis=1)


IQ4_NL = BlockFormat(
    name="iq4_nl",
    size=32,
    block_bytes=18,
    dtype=parse_dtype("int4"),
    group=32,
    table=_CURVE,
    levels=16,
    split=_split_iq4_nl,
    join=_join_iq4_nl,
    fit=_fit_iq4_nl,
    resident=DeviceLayout(ends=(0,), sections=("steps",), shaders=("nibbles", "curve", "table", "signed")),
)
IQ4_XS = BlockFormat(
    name="iq4_xs",
    size=256,
    block_bytes=136,
    dtype=parse_dtype("int4"),
    group=32,
    table=_CURVE,
    levels=16,
    split=_split_iq4_xs,
    join=_join_iq4_xs,
    fit=_fit_iq4_xs,
    resident=DeviceLayout(
        ends=(0,), scales="int8", sections=("scales_8", "steps"), shaders=("nibbles", "curve", "table", "signed")
    ),
)
MXFP4 = BlockFormat(
    name="mxfp4",
    size=32,
    block_bytes=17,
    dtype=parse_dtype("float4_e2m1fn"),
    group=32,
    table=_E2M1,
    levels=16,
    split=_split_mxfp4,
    join=_join_mxfp4,
    fit=_fit_mxfp4,
    resident=DeviceLayout(scales="bfloat16", sections=("exponents",), shaders=("nibbles", "table", "signed")),
    calibrated=False,
)
