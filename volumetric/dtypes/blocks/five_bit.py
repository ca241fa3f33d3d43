"""Q5_0 and Q5_1: blocks of 32 codes of 5 bits. Layouts: ``block_q5_0`` and ``block_q5_1`` in ggml's ``ggml-common.h``.

Four low bits of each code are stored as in Q4_0, elements j and j + 16 in byte j; bit j of a 32-bit word is bit 4 of
element j.
"""

from __future__ import annotations

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
    affine_scales,
    columns,
    default_importance,
    divide_or_zero,
    stored_half,
    symmetric_scales,
)
from volumetric.dtypes.registry import parse_dtype


def five_bits(high: Bytes, low: Bytes) -> Bytes:
    """Codes ``[n, 32]`` from the word of fifth bits and the 16 bytes of low bits."""
    codes = planes(low, 4, 16)
    codes |= np.unpackbits(high, axis=1, bitorder="little") << np.uint8(4)
    return codes


def _split_q5_0(blocks: Bytes) -> Fields:
    """float16 step; word of fifth bits; 16 bytes."""
    return Fields(codes=five_bits(blocks[:, 2:6], blocks[:, 6:]), step=halves(blocks, 0))


def _split_q5_1(blocks: Bytes) -> Fields:
    """float16 step; float16 floor; word of fifth bits; 16 bytes."""
    codes = five_bits(blocks[:, 4:8], blocks[:, 8:])
    return Fields(codes=codes, step=halves(blocks, 0), floor=halves(blocks, 2))


def _join(fields: Fields) -> Bytes:
    floats = [half_bytes(fields.step)] + ([] if fields.floor is None else [half_bytes(fields.floor)])
    high = np.packbits(fields.codes >> np.uint8(4), axis=1, bitorder="little")
    return np.concatenate([*floats, high, packed_planes(fields.codes, 4, 16)], axis=1)


def _fit_q5_0(x: F32Array, importance: F32Array | None) -> Fields:
    weights = default_importance(x, 32) if importance is None else importance
    step, scale = stored_half(symmetric_scales(columns(x, 32), columns(weights, 32), 16, np.arange(-9, 10) / 10))
    codes = np.clip(np.rint(divide_or_zero(x, scale[:, None])), -16, 15) + 16
    return Fields(codes=codes.astype(np.uint8), step=step)


def _fit_q5_1(x: F32Array, importance: F32Array | None) -> Fields:
    weights = default_importance(x, 32) if importance is None else importance
    scale, floor = affine_scales(columns(x, 32), columns(weights, 32), 31, np.arange(-10, 11) / 10)
    (step, scale), (low, floor) = stored_half(scale), stored_half(floor)
    codes = np.clip(np.rint(divide_or_zero(x - floor[:, None], scale[:, None])), 0, 31)
    return Fields(codes=codes.astype(np.uint8), step=step, floor=low)


Q5_0 = BlockFormat(
    name="q5_0",
    size=32,
    block_bytes=22,
    dtype=parse_dtype("int8"),
    group=32,
    levels=32,
    zero=16,
    split=_split_q5_0,
    join=_join,
    fit=_fit_q5_0,
    resident=DeviceLayout(ends=(0,), sections=("fifth_bits", "steps"), shaders=("fives", "signed")),
)
Q5_1 = BlockFormat(
    name="q5_1",
    size=32,
    block_bytes=24,
    dtype=parse_dtype("uint8"),
    group=32,
    levels=32,
    split=_split_q5_1,
    join=_join,
    fit=_fit_q5_1,
    resident=DeviceLayout(ends=(0, 2), floors="float16", sections=("fifth_bits", "pairs"), shaders=("fives", "affine")),
)
