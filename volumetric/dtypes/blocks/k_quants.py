"""Q2_K … Q6_K: blocks of 256 whose groups of 16 or 32 have small integer scales under a float16 of the whole block.

Layouts: ``block_q2_K`` and so on in ggml's ``ggml-common.h``; rules: ``dequantize_row_q2_K`` and so on in its
``ggml-quants.c``. Encoding searches a scale (and floor) for each group, then the small integers for
these, and last the codes, computed with the scales as stored.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

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
    affine_scales,
    columns,
    default_importance,
    divide_or_zero,
    stored_half,
    symmetric_scales,
)
from volumetric.dtypes.registry import parse_dtype

_SPREAD = np.arange(-10, 11) / 10
_AROUND = np.arange(-9, 10) / 10


def _unsigned_scales(numbers: F32Array, top: int) -> tuple[np.ndarray, Bytes, F32Array]:
    """Numbers ≥ 0 ``[n, groups]`` as integers 0 … `top` times one float16; also the values that these represent."""
    step, whole = stored_half(numbers.max(axis=1) / np.float32(top))
    small = np.clip(np.rint(divide_or_zero(numbers, whole[:, None])), 0, top)
    return step, small.astype(np.uint8), small * whole[:, None]


def _signed_scales(numbers: F32Array, top: int) -> tuple[np.ndarray, np.ndarray, F32Array]:
    """Numbers of any sign as integers -`top` … `top` - 1 times one float16; the largest gets -`top`."""
    peak = np.take_along_axis(numbers, np.abs(numbers).argmax(axis=1)[:, None], axis=1)[:, 0]
    step, whole = stored_half(peak / np.float32(-top))
    small = np.clip(np.rint(divide_or_zero(numbers, whole[:, None])), -top, top - 1)
    return step, small.astype(np.int8), small * whole[:, None]


def _affine(x: F32Array, importance: F32Array | None, top: int, group: int, small: int) -> Fields:
    """Codes of groups with a scale and a floor, both of `small` steps at most."""
    weights = default_importance(x, group) if importance is None else importance
    scale, floor = affine_scales(columns(x, group), columns(weights, group), top, _SPREAD)
    groups = x.shape[1] // group
    step, scales, scale = _unsigned_scales(scale.reshape(-1, groups), small)
    floor_step, mins, floor = _unsigned_scales(-floor.reshape(-1, groups), small)
    grouped = x.reshape(len(x), groups, group)
    codes = np.clip(np.rint(divide_or_zero(grouped + floor[..., None], scale[..., None])), 0, top)
    codes = codes.astype(np.uint8).reshape(x.shape)
    return Fields(codes=codes, step=step, scales=scales.view(np.int8), floor=-floor_step, mins=mins)


def _symmetric(x: F32Array, importance: F32Array | None, top: int, small: int) -> Fields:
    """Codes + `top` of groups of 16, whose scales are -`small` … `small` - 1 steps."""
    weights = default_importance(x, 16) if importance is None else importance
    group_scales = symmetric_scales(columns(x, 16), columns(weights, 16), top, _AROUND).reshape(len(x), -1)
    step, scales, scale = _signed_scales(group_scales, small)
    grouped = x.reshape(len(x), -1, 16)
    codes = np.clip(np.rint(divide_or_zero(grouped, scale[..., None])), -top, top - 1) + top
    return Fields(codes=codes.astype(np.uint8).reshape(x.shape), step=step, scales=scales)


def _parts(fields: Fields) -> tuple[Bytes, Bytes, Bytes]:
    """Scales and mins as bytes, and the bytes of the step and of the floor's step."""
    assert fields.scales is not None
    assert fields.mins is not None
    assert fields.floor is not None
    steps = np.concatenate([half_bytes(fields.step), half_bytes(-fields.floor)], axis=1)
    return fields.scales.view(np.uint8), fields.mins, steps


def _twelve_bytes(scales: Bytes, mins: Bytes) -> Bytes:
    """8 scales and 8 mins of 6 bits: the inverse of `six_bits`."""
    four = np.uint8(4)
    rest = (scales[:, 4:] & np.uint8(15)) | (mins[:, 4:] << four)
    first = scales[:, :4] | ((scales[:, 4:] >> four) << np.uint8(6))
    second = mins[:, :4] | ((mins[:, 4:] >> four) << np.uint8(6))
    return np.concatenate([first, second, rest], axis=1)


def _join_q2_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q2_K."""
    scales, mins, steps = _parts(fields)
    return np.concatenate([scales | (mins << np.uint8(4)), packed_planes(fields.codes, 2, 32), steps], axis=1)


def _join_q3_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q3_K."""
    assert fields.scales is not None
    biased = (fields.scales + np.int8(32)).view(np.uint8)
    parts = [packed_planes(fields.codes >> np.uint8(2), 1, 32), packed_planes(fields.codes, 2, 32)]
    parts += [packed_planes(biased, 4, 8), packed_planes(biased >> np.uint8(4), 2, 4), half_bytes(fields.step)]
    return np.concatenate(parts, axis=1)


def _join_q4_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q4_K."""
    scales, mins, steps = _parts(fields)
    return np.concatenate([steps, _twelve_bytes(scales, mins), packed_planes(fields.codes, 4, 32)], axis=1)


def _join_q5_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q5_K."""
    scales, mins, steps = _parts(fields)
    fifth = packed_planes(fields.codes >> np.uint8(4), 1, 32)
    return np.concatenate([steps, _twelve_bytes(scales, mins), fifth, packed_planes(fields.codes, 4, 32)], axis=1)


def _join_q6_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q6_K."""
    assert fields.scales is not None
    parts = [packed_planes(fields.codes, 4, 64), packed_planes(fields.codes >> np.uint8(4), 2, 32)]
    return np.concatenate([*parts, fields.scales.view(np.uint8), half_bytes(fields.step)], axis=1)


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
    """32 bytes of third bits; 64 bytes of low bits; 12 bytes of 6-bit scales; step."""
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
    join=_join_q2_k,
    fit=partial(_affine, top=3, group=16, small=15),
    resident=DeviceLayout(ends=(80, 82), scales="uint4", floors="uint4", sections=("scales_of_4", "pairs"), read=16),
)
Q3_K = _k_quant(
    name="q3_k",
    block_bytes=110,
    dtype=parse_dtype("int4"),
    group=16,
    zero=4,
    levels=8,
    split=_split_q3_k,
    join=_join_q3_k,
    fit=partial(_symmetric, top=4, small=32),
    resident=DeviceLayout(
        ends=(108,), scales="int8", sections=("third_bits", "scales_of_6", "steps"), shaders=("twos",)
    ),
)
Q4_K = _k_quant(
    name="q4_k",
    block_bytes=144,
    dtype=parse_dtype("uint4"),
    group=32,
    levels=16,
    split=_split_q4_k,
    join=_join_q4_k,
    fit=partial(_affine, top=15, group=32, small=63),
    resident=DeviceLayout(
        ends=(0, 2),
        scales="int8",
        floors="uint8",
        sections=("six_bits",),
        shaders=("nibbles", "minima", "affine"),
        nibbles_at=16,
    ),
)
Q5_K = _k_quant(
    name="q5_k",
    block_bytes=176,
    dtype=parse_dtype("uint8"),
    group=32,
    levels=32,
    split=_split_q5_k,
    join=_join_q5_k,
    fit=partial(_affine, top=31, group=32, small=63),
    resident=DeviceLayout(
        ends=(0, 2),
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
    join=_join_q6_k,
    fit=partial(_symmetric, top=32, small=128),
    resident=DeviceLayout(ends=(208,), scales="int8", sections=("two_bits", "scales_16", "steps")),
)
