"""Q3_NL, a format of this package: blocks of 32 codes of 3 bits with an 8-bit scale, for rows not a multiple of 256.

ggml's 3-bit format, Q3_K, needs rows of a multiple of 256; Q3_NL takes the rows of IQ4_NL, at 3.25 bits a weight. The
values of the codes are a compromise between the eight levels with the least error for normal numbers (Max 1960,
"Quantizing for minimum distortion"; 15, 45, 79, 127) and those for Laplace numbers: the squared error of 32 normal
numbers is 2.63 % instead of 2.59 %, that of Laplace numbers 3.3 % instead of 3.9 %. The levels are symmetric, so the
scale needs no sign: its eight bits are 5 of exponent and 3 of mantissa. Byte ``8 e + m`` means ``2^(e − 22) · (1 + m /
8)``, byte 0 means 0.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from volumetric.base._typing import F32Array
from volumetric.dtypes.blocks.format import BlockFormat, Bytes, DeviceLayout, Fields, packed_planes, planes
from volumetric.dtypes.blocks.scale_search import (
    columns,
    default_importance,
    divide_or_zero,
    nearest_index,
    table_scales,
)
from volumetric.dtypes.registry import parse_dtype

_CURVE = (-127, -70, -38, -12, 12, 38, 70, 127)
_BIAS = (127 - 22) << 3
"""Offset between a scale's byte and the upper bits of a float32 without the sign."""
_TRIES = range(-64, 9, 8)
"""How far below −127 the peak's value may lie before clipping: one clipped number may be worth it for the others."""


def _split(blocks: Bytes) -> Fields:
    """The scale; 8 bytes of the codes' two low bits, 4 of their high ones, as in Q3_K."""
    codes = planes(blocks[:, 1:9], 2, 8) | (planes(blocks[:, 9:], 1, 4) << np.uint8(2))
    wide = blocks[:, 0].astype(np.uint16)
    bits = np.where(wide == 0, np.uint16(0), (wide + np.uint16(_BIAS)) << np.uint16(4))
    return Fields(codes=codes, step=bits.astype(np.uint16).view(ml_dtypes.bfloat16))


def _join(fields: Fields) -> Bytes:
    bits = fields.step.view(np.uint16)
    scale = np.where(bits == 0, np.uint16(0), (bits >> np.uint16(4)) - np.uint16(_BIAS)).astype(np.uint8)
    low, high = packed_planes(fields.codes, 2, 8), packed_planes(fields.codes >> np.uint8(2), 1, 4)
    return np.concatenate([scale[:, None], low, high], axis=1)


def _fit(x: F32Array, importance: F32Array | None) -> Fields:
    weights = default_importance(x, 32) if importance is None else importance
    scales = np.abs(table_scales(columns(x, 32), columns(weights, 32), _CURVE, _TRIES))  # the levels are symmetric
    byte = ((scales.view(np.uint32) + np.uint32(1 << 19)) >> np.uint32(20)).astype(np.int64) - _BIAS
    bits = np.where(byte < 0, 0, (np.clip(byte, 1, 255) + _BIAS) << 4).astype(np.uint16)
    step = bits.view(ml_dtypes.bfloat16)
    return Fields(codes=nearest_index(divide_or_zero(x, step.astype(np.float32)[:, None]), _CURVE), step=step)


Q3_NL = BlockFormat(
    name="q3_nl",
    size=32,
    block_bytes=13,
    dtype=parse_dtype("int4"),
    group=32,
    table=_CURVE,
    levels=8,
    split=_split,
    join=_join,
    fit=_fit,
    in_gguf=False,
    resident=DeviceLayout(scales="bfloat16", sections=("third_bits", "exponents"), shaders=("twos", "signed")),
)
