"""Conversion between floating-point types: to nearest, ties to even, saturating.

A finite number too large for the target becomes its largest finite number. NaN and infinities are preserved.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray


def largest_finite(host: np.dtype[Any]) -> float:
    """Largest finite number of a floating-point dtype, including those of ml_dtypes."""
    return float(ml_dtypes.finfo(host).max)


def smallest_positive(host: np.dtype[Any]) -> float:
    """Smallest positive number of a floating-point dtype, subnormals included."""
    return float(ml_dtypes.finfo(host).smallest_subnormal)


def cast_saturating(x: NDArray[Any], host: np.dtype[Any]) -> NDArray[Any]:
    """Return `x` as `host`, rounded and saturated as above. Returns `x` itself if it already has that dtype.

    Targets without infinity or NaN give an unspecified code for those, so callers must reject them first.
    """
    if x.dtype == host:
        return x
    limit = largest_finite(host)
    reach = limit * (1 + 2.0 ** -(ml_dtypes.finfo(host).nmant + 2))  # within half a step: still rounds to limit
    with np.errstate(invalid="ignore"):  # converting a signalling NaN to a quiet one needs no warning
        if x.dtype == np.float64 and host.isbuiltin != 1:
            x = _to_odd_float32(x)  # ml_dtypes goes through float32 and would round twice
        if limit < largest_finite(x.dtype) and x.size and _exceeds(x, reach):
            x = np.where(np.isfinite(x), np.clip(x, -limit, limit), x)
        return x.astype(host)


def _exceeds(x: NDArray[Any], reach: float) -> bool:
    # fmax and fmin ignore NaN, and an infinity only costs the slower path
    return bool(np.fmax.reduce(x, axis=None) > reach or np.fmin.reduce(x, axis=None) < -reach)


def _to_odd_float32(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 so that a second rounding to a narrower type gives what one rounding would.

    Round to odd: towards zero, then set the lowest bit if anything was lost (Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums", 2008).
    """
    limit = largest_finite(np.dtype(np.float32))
    y = np.where(np.isfinite(x), np.clip(x, -limit, limit), x).astype(np.float32)
    bits = y.view(np.uint32)
    bits -= np.abs(y.astype(np.float64)) > np.abs(x)
    bits |= np.isfinite(x) & (y.astype(np.float64) != x)
    return y
