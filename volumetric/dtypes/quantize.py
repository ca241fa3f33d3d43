"""Quantisation of groups of numbers to codes with a scale: one rule per kind of type.

Every rule takes ``blocks`` of shape ``[rows, groups, size]``, float32 or float64, all finite except where the type can
hold NaN or infinity, and returns codes of that shape with scales (and offsets) of shape ``[rows, groups]``. NumPy's
floating-point warnings must be disabled by the caller: the rules rely on overflow and division by zero.

Edge cases, the same for all rules: a group of zeros has scale 0. A scale or offset too large for its dtype saturates
and the codes are computed with the stored value, so decoding gives the nearest representable numbers, never infinity.
A scale too small for its dtype becomes zero under the GGUF rules (as in ggml: the group decodes to zeros, or to its
offset), and the smallest subnormal number under the others. uint8/4/2 saturate at half of float32's range.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volumetric.dtypes.registry import DType
from volumetric.dtypes.rounding import cast_saturating, largest_finite, smallest_positive
from volumetric.dtypes.table_dtypes import nearest_codes

_SMALLEST_INVERTIBLE = np.float32(2.938736e-39)  # below this, 1/d is infinite in float32
_SHORT = 64  # NumPy reduces rows shorter than this slowly: 3.3 ns for each of 32 elements, against 0.7 transposed
_F32 = np.dtype(np.float32)
_HALF_RANGE = np.float32(largest_finite(_F32) / 2)  # numbers within ± this have differences that float32 can hold


class QuantizedGroups(NamedTuple):
    """Codes ready for `pack_codes`, with their scales and offsets in the scheme's scale dtype."""

    codes: NDArray[Any]
    scales: NDArray[Any]
    offsets: NDArray[Any] | None = None


def quantize(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """Quantise ``[rows, groups, size]`` to `dtype` by the rule of its kind; scales and offsets have dtype `host`."""
    return _rule(dtype)(blocks, dtype, host)


def _rule(dtype: DType) -> Callable[[NDArray[Any], DType, np.dtype[Any]], QuantizedGroups]:
    if dtype.is_float or dtype.kind == "table":
        return _float_peak
    if dtype.kind == "ternary":
        return _ternary
    if dtype.kind == "binary":
        return _binary
    if dtype.bits > 8:
        return _wide_affine if dtype.kind == "uint" else _wide_peak
    if dtype.kind == "uint":
        return _range
    return _peak if dtype.bits == 8 else _signed_peak


def plain_codes(x: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Codes of values without a scale: rounded to nearest even, saturating; ternary from ±½, binary by sign."""
    if dtype.is_float:
        return _float_codes(x, dtype)
    if dtype.kind == "table":
        return nearest_codes(x, dtype)
    if dtype.kind == "ternary":
        return _sign_codes(x, np.asarray(0.5))
    if dtype.kind == "binary":
        return (x >= 0).view(np.uint8)
    low, high = _integer_range(dtype)
    codes = np.clip(np.rint(x.astype(np.float64)), low, high)
    if dtype.bits >= 8:
        return codes.astype(dtype.host)
    return codes.astype(np.int8).view(np.uint8) & np.uint8((1 << dtype.bits) - 1)


def _integer_range(dtype: DType) -> tuple[float, float]:
    """Least and greatest code as float64, rounded inwards: 2⁶³ − 1 has no float64, 2⁶³ − 1024 has."""
    if dtype.kind == "uint":
        top = 2**dtype.bits - 1 if dtype.bits < 64 else 2**64 - 2048
        return 0.0, float(top)
    top = 2 ** (dtype.bits - 1) - 1 if dtype.bits < 64 else 2**63 - 1024
    return float(-(2 ** (dtype.bits - 1))), float(top)


def _extremes(blocks: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the greatest number of each group; NaN if it contains NaN."""
    if blocks.shape[-1] > _SHORT:
        return blocks.min(axis=-1), blocks.max(axis=-1)
    columns = np.ascontiguousarray(np.moveaxis(blocks, -1, 0))
    return columns.min(axis=0), columns.max(axis=0)


def _largest_magnitude(blocks: NDArray[Any]) -> NDArray[Any]:
    low, high = _extremes(blocks)
    return np.abs(np.maximum(high, -low))  # abs: the greatest of zeros may be −0


# Floats with a scale -------------------------------------------------------------------------------------------------


def _float_codes(x: NDArray[Any], dtype: DType) -> NDArray[Any]:
    codes = cast_saturating(x, dtype.host)
    return codes.view(np.uint8) if dtype.bits <= 8 else codes


def _float_peak(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """float8, float4 and tables: the largest finite magnitude of a group maps to the type's largest number."""
    peak = _largest_magnitude(blocks)
    odd = ~np.isfinite(peak)
    if odd.any():
        peak = _largest_magnitude(np.where(np.isfinite(blocks), blocks, 0))
    scales = _round_scales(peak / np.float64(_top(dtype)), host)  # in float32 a quotient may underflow unnoticed
    scales[odd & (scales == 0)] = 1  # an infinity among zeros must decode to infinity, not to 0 · inf
    divisor = scales.astype(blocks.dtype)
    divisor[divisor == 0] = 1
    return QuantizedGroups(plain_codes(blocks / divisor[..., None], dtype), scales)


def _top(dtype: DType) -> float:
    return largest_finite(dtype.host) if dtype.values is None else max(map(abs, dtype.values))


def _round_scales(scales: NDArray[Any], host: np.dtype[Any]) -> NDArray[Any]:
    """Round positive scales to the dtype they are stored in, keeping nonzero scales from becoming zero."""
    rounded = cast_saturating(scales, host)
    if rounded is scales:
        return rounded
    rounded[(rounded == 0) & (scales > 0)] = smallest_positive(host)
    return rounded


# Integers of up to 8 bits: the GGUF rules ----------------------------------------------------------------------------
# Scales are computed and inverted in float32, and codes are computed with the scale before it is rounded to its storage
# dtype. For groups of 32 with float16 scales the result is that of ggml's reference quantisers, bit for bit.


def _peak(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """Q8_0's rule: d = max |x| / 127, code = x / d rounded half away from zero."""
    blocks = cast_saturating(blocks, _F32)
    scales, inverse = _ggml_scales(_largest_magnitude(blocks) / np.float32(127), host)
    scaled = blocks * inverse[..., None]
    np.clip(scaled, -127, 127, out=scaled)
    codes = np.trunc(scaled)
    scaled -= codes
    scaled += scaled
    codes += np.trunc(scaled, out=scaled)  # adds ±1 exactly where the fraction is a half or more
    return QuantizedGroups(codes.astype(np.int8).view(np.uint8), scales)


def _signed_peak(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """Q4_0's rule: the number of largest magnitude becomes the most negative code, so d = x_peak / −8 (−2 for int2)."""
    blocks = cast_saturating(blocks, _F32)
    half = 1 << (dtype.bits - 1)
    scales, inverse = _ggml_scales(_first_peak(blocks) / np.float32(-half), host)
    codes = _truncate_codes(blocks * inverse[..., None], half + 0.5, 2 * half - 1)
    return QuantizedGroups(codes ^ np.uint8(half), scales)  # from code + half to two's complement


def _range(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """Q4_1's rule: d = (max − min) / (2ᵇ − 1), offset = min."""
    blocks = cast_saturating(blocks, _F32)
    levels = (1 << dtype.bits) - 1
    low, high = _extremes(blocks)
    zero = low == 0
    if zero.any():
        low[zero] = blocks[zero].min(axis=-1)  # which of −0 and 0 is the least depends on the order of reduction
    if max(high.max(), -low.min()) > _HALF_RANGE:
        blocks = np.clip(blocks, -_HALF_RANGE, _HALF_RANGE)
        low, high = np.clip(low, -_HALF_RANGE, _HALF_RANGE), np.clip(high, -_HALF_RANGE, _HALF_RANGE)
    offsets, low = _storable(low, host)
    spread = np.maximum(high - low, np.float32(0))  # negative if all numbers exceed the offset's range
    scales, inverse = _ggml_scales(spread / np.float32(levels), host)
    codes = _truncate_codes((blocks - low[..., None]) * inverse[..., None], 0.5, levels)
    return QuantizedGroups(codes, scales, offsets)


def _ggml_scales(d: NDArray[Any], host: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return the scales to store, and the inverses of those used to compute the codes (0 for 0)."""
    scales, d = _storable(d, host)
    return scales, np.where(np.abs(d) < _SMALLEST_INVERTIBLE, np.float32(0), np.float32(1) / d)


def _storable(x: NDArray[Any], host: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return `x` rounded to its storage dtype, and `x` itself, saturated where it exceeds that dtype."""
    stored = cast_saturating(x, host)
    beyond = np.isinf(x.astype(host))  # numbers that merely round down to the limit do not exceed it
    return stored, np.where(beyond, stored.astype(np.float32), x)


def _first_peak(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    """The number of largest magnitude of each group; among equals the first, which matters for its sign."""
    low, high = _extremes(blocks)
    peak = np.where(high > -low, high, low)
    tied = high == -low
    if tied.any():
        groups = blocks[tied]
        first = np.abs(groups).argmax(axis=-1)
        peak[tied] = groups[np.arange(len(groups)), first]
    return peak


def _truncate_codes(scaled: NDArray[np.float32], shift: float, top: int) -> NDArray[np.uint8]:
    """Round up to half by truncation of scaled + shift, clipped to codes 0 … top. Overwrites `scaled`."""
    scaled += np.float32(shift)
    np.clip(scaled, 0, np.float32(top + 0.5), out=scaled)
    return scaled.astype(np.uint8)


# Wider integers: float64 arithmetic, codes use the stored scale -----------------------------------------------


def _wide_peak(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """int16/32/64: max |x| maps to the greatest code, or near it (see `_wide_scales`)."""
    x = _within_float32(blocks)
    top = _integer_range(dtype)[1]
    scales = _wide_scales(np.abs(x).max(axis=-1), top, host)
    codes = np.rint(x / _divisor(scales))
    return QuantizedGroups(np.clip(codes, -top, top).astype(dtype.host), scales)


def _wide_affine(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """uint16/32/64: min maps to 0, max to the greatest code, or near it (see `_wide_scales`)."""
    x = _within_float32(blocks)
    top = _integer_range(dtype)[1]
    offsets = cast_saturating(x.min(axis=-1), host)
    x = x - offsets.astype(np.float64)[..., None]
    scales = _wide_scales(np.maximum(x.max(axis=-1), 0), top, host)
    codes = np.rint(x / _divisor(scales))
    return QuantizedGroups(np.clip(codes, 0, top).astype(dtype.host), scales, offsets)


def _wide_scales(peak: NDArray[np.float64], top: float, host: np.dtype[Any]) -> NDArray[Any]:
    """Scales that map `peak` to `top` (16 bits), or at most that and to a power of two (32 and 64 bits).

    With 32 bits and more the codes are finer than the scale's rounding, which would then dominate the error. A power
    of two is not rounded: float32 numbers within 2⁷ (int32) or 2³⁹ (int64) of the largest are stored exactly.
    """
    if top < 2**24:
        return _round_scales(peak / top, host)
    exponent = np.frexp(peak)[1] - frexp(top)[1]
    return _round_scales(np.where(peak > 0, np.ldexp(1.0, exponent), 0.0), host)


def _within_float32(blocks: NDArray[Any]) -> NDArray[np.float64]:
    limit = largest_finite(_F32)
    x = blocks.astype(np.float64)
    return np.clip(x, -limit, limit, out=x) if blocks.dtype == np.float64 else x


def _divisor(scales: NDArray[Any]) -> NDArray[np.float64]:
    divisor = scales.astype(np.float64)
    divisor[divisor == 0] = 1
    return divisor[..., None]


# Ternary and binary --------------------------------------------------------------------------------------------------


def _ternary(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """BitNet b1.58: scale = mean |x|, code = round(x / scale) limited to ±1 (Ma et al. 2024, equations 1–3).

    A group of only 0 and ±a is already ternary and is stored exactly, with scale a; with the mean, importing
    trained ternary weights, or encoding twice, would shrink them.
    """
    size = np.abs(blocks)
    peak = size.max(axis=-1)
    total = size.sum(axis=-1, dtype=np.float64)
    count = np.count_nonzero(blocks, axis=-1)
    mean = np.where(total == peak * count.astype(np.float64), peak, total / blocks.shape[-1])
    scales = _round_scales(mean, host)
    return QuantizedGroups(_sign_codes(blocks, scales.astype(blocks.dtype)[..., None] / 2), scales)


def _binary(blocks: NDArray[Any], dtype: DType, host: np.dtype[Any]) -> QuantizedGroups:
    """XNOR-Net: scale = mean |x|, code = sign, where zero counts as positive (Rastegari et al. 2016, equation 6)."""
    scales = _round_scales(np.abs(blocks).mean(axis=-1, dtype=np.float64), host)
    return QuantizedGroups((blocks >= 0).view(np.uint8), scales)


def _sign_codes(x: NDArray[Any], threshold: NDArray[Any]) -> NDArray[np.uint8]:
    """0, 1, 2 for numbers below −threshold, between, and above."""
    return np.uint8(1) + (x > threshold).view(np.uint8) - (x < -threshold).view(np.uint8)
