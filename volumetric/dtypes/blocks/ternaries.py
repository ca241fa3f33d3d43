"""TQ1_0 and TQ2_0: blocks of 256 codes −1, 0, +1 with one float16 step. ``block_tq1_0``, ``block_tq2_0`` in ggml."""

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
from volumetric.dtypes.blocks.scale_search import divide_or_zero, stored_half
from volumetric.dtypes.registry import parse_dtype

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def _unpack_base_3(packed: Bytes, count: int) -> Bytes:
    """The first `count` base-3 digits of each byte; first digits of all bytes come first.

    A byte is ⌈256 · fraction⌉ of a base-3 fraction below 1. Digit i is the integer part of three times
    the fractional part of the fraction times 3ⁱ.
    """
    shifted = packed[:, None, :] * _POWERS[:count]
    return ((shifted.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)).astype(np.uint8).reshape(len(packed), -1)


def _split_tq1_0(blocks: Bytes) -> Fields:
    """32 and 16 bytes of five digits each, 4 bytes of four; step."""
    parts = [
        _unpack_base_3(blocks[:, :32], 5),
        _unpack_base_3(blocks[:, 32:48], 5),
        _unpack_base_3(blocks[:, 48:52], 4),
    ]
    return Fields(codes=np.concatenate(parts, axis=1), step=halves(blocks, 52))


def _split_tq2_0(blocks: Bytes) -> Fields:
    """64 bytes of four codes each; step."""
    return Fields(codes=planes(blocks[:, :64], 2, 32), step=halves(blocks, 64))


def _fit(x: F32Array, importance: F32Array | None) -> Fields:
    """Codes against the largest magnitude, as in ggml: exact for weights that were trained to be ternary."""
    step, scale = stored_half(np.abs(x).max(axis=1))
    codes = np.clip(np.rint(divide_or_zero(x, scale[:, None])), -1, 1) + 1
    return Fields(codes=codes.astype(np.uint8), step=step)


def _pack_base_3(trits: Bytes, width: int) -> Bytes:
    """Bytes of digits ``[n, digits · width]``: the inverse of `_unpack_base_3`; a last 0 pads four digits."""
    digits = trits.reshape(len(trits), -1, width).astype(np.uint16)
    whole = sum(digits[:, i] * np.uint16(3 ** (4 - i)) for i in range(digits.shape[1]))
    return ((np.asarray(whole, np.uint32) * 256 + 242) // 243).astype(np.uint8)


def _join_tq1_0(fields: Fields) -> Bytes:
    codes = fields.codes
    parts = [_pack_base_3(codes[:, :160], 32), _pack_base_3(codes[:, 160:240], 16), _pack_base_3(codes[:, 240:], 4)]
    return np.concatenate([*parts, half_bytes(fields.step)], axis=1)


def _join_tq2_0(fields: Fields) -> Bytes:
    return np.concatenate([packed_planes(fields.codes, 2, 32), half_bytes(fields.step)], axis=1)


TQ1_0 = BlockFormat(
    name="tq1_0",
    size=256,
    block_bytes=54,
    dtype=parse_dtype("ternary"),
    group=256,
    zero=1,
    levels=3,
    split=_split_tq1_0,
    join=_join_tq1_0,
    fit=_fit,
    resident=DeviceLayout(ends=(52,), scales="head", sections=("steps",), shaders=("twos", "ternary", "signed")),
    calibrated=False,
)
TQ2_0 = BlockFormat(
    name="tq2_0",
    size=256,
    block_bytes=66,
    dtype=parse_dtype("ternary"),
    group=256,
    zero=1,
    levels=3,
    split=_split_tq2_0,
    join=_join_tq2_0,
    fit=_fit,
    resident=DeviceLayout(ends=(64,), scales="head", sections=("steps",), shaders=("twos", "ternary", "signed")),
    calibrated=False,
)
