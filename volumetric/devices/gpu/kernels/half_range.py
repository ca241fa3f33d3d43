"""The range of weights that matrix units may multiply as float16."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from volumetric.dtypes import BlockFormat, DType, Packed
from volumetric.dtypes.blocks.format import halves, scales_of

_LARGEST = float(np.finfo(np.float16).max)
_LEAST = 2.0**-13
"""If the largest weight is smaller, rounding to float16 is coarser than 2^-12 of it."""


def fits_half(largest: float) -> bool:
    """Whether weights, the largest of this magnitude, may be rounded to float16; none with infinity or NaN may."""
    return largest == 0 or _LEAST <= largest <= _LARGEST


def largest_magnitude(packed: Packed) -> float:
    """Return the largest magnitude of weights, or NaN; with scales a bound: that of the largest code at each scale."""
    scheme = packed.scheme
    if scheme.blocks is not None:
        return _of_blocks(scheme.blocks, packed.raw_blocks())
    if packed.scales is not None:
        reach = np.abs(packed.scales, dtype=np.float32) * np.float32(_largest_code(scheme.dtype))
        if packed.offsets is not None:
            reach += np.abs(packed.offsets, dtype=np.float32)
        return float(reach.max(initial=0))
    if scheme.dtype.host.itemsize == 2:
        return _of_halves(packed.payload.view(np.uint16), scheme.dtype.host)
    return float(np.abs(packed.payload.view(scheme.dtype.host)).max(initial=0))


def _of_halves(bits: NDArray[np.uint16], host: np.dtype[Any]) -> float:
    """Largest of 16-bit floats by their bits: two maxima, of positive and of negative ones, without a copy."""
    positive = max(int(bits.view(np.int16).max(initial=0)), 0)
    negative = int(bits.max(initial=0))
    top = max(positive, negative & 0x7FFF if negative & 0x8000 else 0)
    return float(np.array([top], np.uint16).view(host)[0])


def _largest_code(dtype: DType) -> float:
    if dtype.is_float:
        return float(ml_dtypes.finfo(dtype.host).max)
    return float(1 << (dtype.bits - (dtype.kind == "int")))


def _of_blocks(form: BlockFormat, raw: NDArray[np.uint8]) -> float:
    """Bound from the blocks with the largest step and the largest floor; only these are split."""
    if not raw.size:
        return 0.0
    at = form.resident.ends if form.resident else None
    ends = [raw[:, 0]] if at is None else [np.abs(halves(raw, place)) for place in at]
    chosen = raw[[int(np.argmax(end)) for end in ends]]
    fields = form.split(chosen)
    codes = np.arange(1 << (form.levels - 1).bit_length(), dtype=np.uint8)  # some formats have codes without a use
    top = float(np.abs(form.numbers(codes).astype(np.float32)).max())
    widest = fields._replace(
        scales=None if fields.scales is None else np.full_like(fields.scales, np.iinfo(np.int8).max),
        mins=None if fields.mins is None else np.full_like(fields.mins, np.iinfo(np.uint8).max),
    )
    scale, floor = scales_of(widest)
    reach = np.abs(scale).max() * top + (0.0 if floor is None else np.abs(floor).max())
    return float(reach)
