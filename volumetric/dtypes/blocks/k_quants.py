"""Q2_K … Q6_K: blocks of 256 whose groups of 16 or 32 have small integer scales under a float16 of the whole block.

Layouts: ``block_q2_K`` and so on in ggml's ``ggml-common.h``; rules: ``dequantize_row_q2_K`` and so on in its
``ggml-quants.c``.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from volumetric.dtypes.blocks import k_encoders
from volumetric.dtypes.blocks.format import BlockFormat, Bytes, Fields, Resident, halves, planes
from volumetric.dtypes.registry import parse_dtype


def _split_q2_k(blocks: Bytes) -> Fields:
    """16 bytes of scale (low half) and min (high half); 64 bytes of codes; step; −floor."""
    scales = blocks[:, :16]
    return Fields(
        codes=planes(blocks[:, 16:80], 2, 32),
        step=halves(blocks, 80),
        scales=(scales & np.uint8(15)).view(np.int8),
        floor=-halves(blocks, 82),
        mins=scales >> np.uint8(4),
    )


def _split_q3_k(blocks: Bytes) -> Fields:
    """32 bytes of third bits; 64 bytes of the others; 12 bytes of 6-bit scales; step."""
    codes = planes(blocks[:, 32:96], 2, 32)
    codes |= planes(blocks[:, :32], 1, 32) << np.uint8(2)
    scales = planes(blocks[:, 96:104], 4, 8) | (planes(blocks[:, 104:108], 2, 4) << np.uint8(4))
    return Fields(codes=codes, step=halves(blocks, 108), scales=scales.view(np.int8) - np.int8(32))


def six_bits(packed: Bytes) -> tuple[NDArray[np.int8], Bytes]:
    """8 scales and 8 mins of 6 bits out of 12 bytes.

    The first four of both are the low bits of bytes 0–3 and 4–7, whose upper two bits, over the halves of bytes 8–11,
    make the last four.
    """
    a, b, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    low, upper = np.uint8(63), np.uint8(48)
    scales = np.concatenate([a & low, (rest & np.uint8(15)) | ((a >> np.uint8(2)) & upper)], axis=1)
    mins = np.concatenate([b & low, (rest >> np.uint8(4)) | ((b >> np.uint8(2)) & upper)], axis=1)
    return scales.view(np.int8), mins


def _split_q4_k(blocks: Bytes) -> Fields:
    """Step; −floor; 12 bytes of scales and mins; 128 bytes of codes."""
    scales, mins = six_bits(blocks[:, 4:16])
    codes = planes(blocks[:, 16:], 4, 32)
    return Fields(codes=codes, step=halves(blocks, 0), scales=scales, floor=-halves(blocks, 2), mins=mins)


def _split_q5_k(blocks: Bytes) -> Fields:
    """As Q4_K, with 32 bytes of fifth bits before the codes."""
    scales, mins = six_bits(blocks[:, 4:16])
    codes = planes(blocks[:, 48:], 4, 32)
    codes |= planes(blocks[:, 16:48], 1, 32) << np.uint8(4)
    return Fields(codes=codes, step=halves(blocks, 0), scales=scales, floor=-halves(blocks, 2), mins=mins)


def _split_q6_k(blocks: Bytes) -> Fields:
    """128 bytes of four low bits; 64 bytes of two high bits; 16 int8 scales; step."""
    codes = planes(blocks[:, :128], 4, 64)
    codes |= planes(blocks[:, 128:192], 2, 32) << np.uint8(4)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return Fields(codes=codes, step=halves(blocks, 208), scales=scales)


_k_quant = partial(BlockFormat, size=256)

Q2_K = _k_quant(
    name="q2_k",
    block_bytes=84,
    dtype=parse_dtype("uint2"),
    group=16,
    levels=4,
    split=_split_q2_k,
    join=k_encoders.join_q2_k,
    fit=k_encoders.fit_q2_k,
    resident=Resident(scales="uint4", floors="uint4", sections=("scales_of_4", "pairs"), read=16),
)
Q3_K = _k_quant(
    name="q3_k",
    block_bytes=110,
    dtype=parse_dtype("int4"),
    group=16,
    zero=4,
    levels=8,
    split=_split_q3_k,
    join=k_encoders.join_q3_k,
    fit=k_encoders.fit_q3_k,
    resident=Resident(scales="int8", sections=("third_bits", "scales_of_6", "steps"), shaders=("twos",)),
)
Q4_K = _k_quant(
    name="q4_k",
    block_bytes=144,
    dtype=parse_dtype("uint4"),
    group=32,
    levels=16,
    split=_split_q4_k,
    join=k_encoders.join_q4_k,
    fit=k_encoders.fit_q4_k,
    resident=Resident(
        scales="int8", floors="uint8", sections=("six_bits",), shaders=("nibbles", "minima", "affine"), nibbles_at=16
    ),
)
Q5_K = _k_quant(
    name="q5_k",
    block_bytes=176,
    dtype=parse_dtype("uint8"),
    group=32,
    levels=32,
    split=_split_q5_k,
    join=k_encoders.join_q5_k,
    fit=k_encoders.fit_q5_k,
    resident=Resident(
        scales="int8",
        floors="uint8",
        sections=("six_bits", "fifth_bits"),
        shaders=("fives", "minima", "affine"),
        nibbles_at=48,
    ),
)
Q6_K = _k_quant(
    name="q6_k",
    block_bytes=210,
    dtype=parse_dtype("int8"),
    group=16,
    zero=32,
    levels=64,
    split=_split_q6_k,
    join=k_encoders.join_q6_k,
    fit=k_encoders.fit_q6_k,
    resident=Resident(scales="int8", sections=("two_bits", "scales_16", "steps")),
)
