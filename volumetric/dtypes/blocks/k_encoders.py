"""float32 to Q2_K … Q6_K: a scale (and floor) for each group by search, small integers for these, then the codes.

The codes are taken last, against the scales as they are stored.
"""

from __future__ import annotations

import numpy as np

from volumetric._typing import F32Array
from volumetric.dtypes.blocks.format import Bytes, Fields, half_bytes, packed_planes
from volumetric.dtypes.blocks.search import affine_scales, by_size, columns, divided, stored_half, symmetric_scales

_SPREAD = np.arange(-10, 11) / 10
_AROUND = np.arange(-9, 10) / 10


def _small(wanted: F32Array, top: int) -> tuple[np.ndarray, Bytes, F32Array]:
    """Numbers ≥ 0 ``[n, groups]`` as integers 0 … `top` times one float16; also what that stands for."""
    step, whole = stored_half(wanted.max(axis=1) / np.float32(top))
    small = np.clip(np.rint(divided(wanted, whole[:, None])), 0, top)
    return step, small.astype(np.uint8), small * whole[:, None]


def _signed(wanted: F32Array, top: int) -> tuple[np.ndarray, np.ndarray, F32Array]:
    """Numbers of any sign as integers -`top` … `top` - 1 times one float16; the largest gets -`top`."""
    peak = np.take_along_axis(wanted, np.abs(wanted).argmax(axis=1)[:, None], axis=1)[:, 0]
    step, whole = stored_half(peak / np.float32(-top))
    small = np.clip(np.rint(divided(wanted, whole[:, None])), -top, top - 1)
    return step, small.astype(np.int8), small * whole[:, None]


def _affine(x: F32Array, importance: F32Array | None, top: int, group: int, small: int) -> Fields:
    """Codes of groups with a scale and a floor, both of `small` steps at most."""
    weights = by_size(x, group) if importance is None else importance
    scale, floor = affine_scales(columns(x, group), columns(weights, group), top, _SPREAD)
    groups = x.shape[1] // group
    step, scales, scale = _small(scale.reshape(-1, groups), small)
    floor_step, mins, floor = _small(-floor.reshape(-1, groups), small)
    grouped = x.reshape(len(x), groups, group)
    codes = np.clip(np.rint(divided(grouped + floor[..., None], scale[..., None])), 0, top)
    codes = codes.astype(np.uint8).reshape(x.shape)
    return Fields(codes=codes, step=step, scales=scales.view(np.int8), floor=-floor_step, mins=mins)


def _symmetric(x: F32Array, importance: F32Array | None, top: int, small: int) -> Fields:
    """Codes + `top` of groups of 16, whose scales are -`small` … `small` - 1 steps."""
    weights = by_size(x, 16) if importance is None else importance
    wanted = symmetric_scales(columns(x, 16), columns(weights, 16), top, _AROUND).reshape(len(x), -1)
    step, scales, scale = _signed(wanted, small)
    grouped = x.reshape(len(x), -1, 16)
    codes = np.clip(np.rint(divided(grouped, scale[..., None])), -top, top - 1) + top
    return Fields(codes=codes.astype(np.uint8).reshape(x.shape), step=step, scales=scales)


def _parts(fields: Fields) -> tuple[Bytes, Bytes, Bytes]:
    """Scales and mins as bytes, and the bytes of step and size of the floor's step."""
    assert fields.scales is not None
    assert fields.mins is not None
    assert fields.floor is not None
    steps = np.concatenate([half_bytes(fields.step), half_bytes(-fields.floor)], axis=1)
    return fields.scales.view(np.uint8), fields.mins, steps


def _twelve_bytes(scales: Bytes, mins: Bytes) -> Bytes:
    """8 scales and 8 mins of 6 bits: undoes `k_quants.six_bits`."""
    four = np.uint8(4)
    rest = (scales[:, 4:] & np.uint8(15)) | (mins[:, 4:] << four)
    first = scales[:, :4] | ((scales[:, 4:] >> four) << np.uint8(6))
    second = mins[:, :4] | ((mins[:, 4:] >> four) << np.uint8(6))
    return np.concatenate([first, second, rest], axis=1)


def fit_q2_k(x: F32Array, importance: F32Array | None) -> Fields:
    """Numbers as Q2_K."""
    return _affine(x, importance, 3, 16, 15)


def join_q2_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q2_K."""
    scales, mins, steps = _parts(fields)
    return np.concatenate([scales | (mins << np.uint8(4)), packed_planes(fields.codes, 2, 32), steps], axis=1)


def fit_q3_k(x: F32Array, importance: F32Array | None) -> Fields:
    """Numbers as Q3_K."""
    return _symmetric(x, importance, 4, 32)


def join_q3_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q3_K."""
    assert fields.scales is not None
    biased = (fields.scales + np.int8(32)).view(np.uint8)
    parts = [packed_planes(fields.codes >> np.uint8(2), 1, 32), packed_planes(fields.codes, 2, 32)]
    parts += [packed_planes(biased, 4, 8), packed_planes(biased >> np.uint8(4), 2, 4), half_bytes(fields.step)]
    return np.concatenate(parts, axis=1)


def fit_q4_k(x: F32Array, importance: F32Array | None) -> Fields:
    """Numbers as Q4_K."""
    return _affine(x, importance, 15, 32, 63)


def join_q4_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q4_K."""
    scales, mins, steps = _parts(fields)
    return np.concatenate([steps, _twelve_bytes(scales, mins), packed_planes(fields.codes, 4, 32)], axis=1)


def fit_q5_k(x: F32Array, importance: F32Array | None) -> Fields:
    """Numbers as Q5_K."""
    return _affine(x, importance, 31, 32, 63)


def join_q5_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q5_K."""
    scales, mins, steps = _parts(fields)
    fifth = packed_planes(fields.codes >> np.uint8(4), 1, 32)
    return np.concatenate([steps, _twelve_bytes(scales, mins), fifth, packed_planes(fields.codes, 4, 32)], axis=1)


def fit_q6_k(x: F32Array, importance: F32Array | None) -> Fields:
    """Numbers as Q6_K."""
    return _symmetric(x, importance, 32, 128)


def join_q6_k(fields: Fields) -> Bytes:
    """Blocks of 256 in Q6_K."""
    assert fields.scales is not None
    parts = [packed_planes(fields.codes, 4, 64), packed_planes(fields.codes >> np.uint8(4), 2, 32)]
    return np.concatenate([*parts, fields.scales.view(np.uint8), half_bytes(fields.step)], axis=1)
