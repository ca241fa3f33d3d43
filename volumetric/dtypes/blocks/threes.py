"""Q3_NL, a format of ours: blocks of 32 codes of 3 bits with a scale of 8, for rows that fill no blocks of 256.

ggml's own 3 bits, Q3_K, take rows of a multiple of 256; this takes what IQ4_NL takes, at 3.25 bits a weight. The values
of the codes are between the eight levels that lose least of normal numbers (Max 1960, "Quantizing for minimum
distortion"; 15, 45, 79, 127) and those for Laplace's: of 32 normal numbers they lose 2.63 % of the squares instead of
2.59 %, of Laplace's 3.3 % instead of 3.9 %. Being symmetric they need no sign in the scale, whose eight bits are 5 of
exponent and 3 of mantissa: byte ``8 e + m`` stands for ``2^(e − 22) · (1 + m / 8)``, byte 0 for 0.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from volumetric.base._typing import F32Array
from volumetric.dtypes.blocks.format import BlockFormat, Bytes, Fields, Resident, packed_planes, planes
from volumetric.dtypes.blocks.search import by_size, columns, divided, nearest_index, table_scales
from volumetric.dtypes.registry import parse_dtype

_CURVE = (-127, -70, -38, -12, 12, 38, 70, 127)
_BIAS = (127 - 22) << 3
"""What a scale's byte lacks of the upper bits of a float32, without the sign."""
_TRIES = range(-64, 9, 8)
"""By how much less than −127 the peak's value may be before it is limited: of eight levels some serve the many."""


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
    weights = by_size(x, 32) if importance is None else importance
    scales = np.abs(table_scales(columns(x, 32), columns(weights, 32), _CURVE, _TRIES))  # the levels are symmetric
    byte = ((scales.view(np.uint32) + np.uint32(1 << 19)) >> np.uint32(20)).astype(np.int64) - _BIAS
    bits = np.where(byte < 0, 0, (np.clip(byte, 1, 255) + _BIAS) << 4).astype(np.uint16)
    step = bits.view(ml_dtypes.bfloat16)
    return Fields(codes=nearest_index(divided(x, step.astype(np.float32)[:, None]), _CURVE), step=step)


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
    resident=Resident(scales="bfloat16", sections=("third_bits", "exponents"), shaders=("twos", "signed")),
)
