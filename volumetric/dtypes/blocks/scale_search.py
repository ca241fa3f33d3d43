"""Search for scales (and floors) of groups of numbers that minimise the weighted squared rounding error.

Rounding determines the codes, and for fixed codes the best scale is a least-squares fit. So a few candidate scales
are tried, each refitted to its codes, and the best is kept. The candidates are those of ggml's
quantisers (``make_qx_quants`` and ``make_qkx2_quants`` in ``ggml-quants.c``).

Groups are columns here, ``[numbers of a group, groups]``: sums over a group then run along whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from volumetric.base._typing import F32Array

_TINY = np.float32(1e-30)
_LARGEST = np.float32(2e9)
"""More than any format with float16 steps can hold: 65504 · 128 · 127."""


def columns(x: F32Array, group: int) -> F32Array:
    """Blocks ``[n, size]`` as columns of `group` numbers, in order, clipped so that squares and sums stay finite."""
    return np.clip(np.ascontiguousarray(x.reshape(-1, group).T), -_LARGEST, _LARGEST)


def signed_peaks(x: F32Array) -> F32Array:
    """The number of largest magnitude of each column, with its sign."""
    high, low = x.max(axis=0), x.min(axis=0)
    return np.where(high > -low, high, low)


def default_importance(x: F32Array, group: int) -> F32Array:
    """Default weights of the numbers of blocks: ``|x|`` plus the root mean square of the group.

    Large weights count more than small ones, as in ggml's Q4_K.
    """
    groups = x.reshape(len(x), -1, group)
    return (np.abs(groups) + np.sqrt(np.square(groups).mean(axis=2, keepdims=True))).reshape(x.shape)


def symmetric_scales(x: F32Array, weights: F32Array, top: int, tries: Iterable[float]) -> F32Array:
    """Scales s of ``x ≈ s · code`` with codes from -`top` to `top` - 1; the peak takes a code near -`top`.

    Parameters
    ----------
    tries : offsets of the peak's code from -`top` to try
    """
    peak = signed_peaks(x)
    inverse = np.where(np.abs(peak) < _TINY, np.float32(0), np.float32(-1) / np.where(peak == 0, np.float32(1), peak))
    weighted = weights * x
    best, scales = np.full(len(peak), np.float32(-1)), peak / np.float32(-top)
    for more in tries:
        codes = np.rint((inverse * np.float32(top + more)) * x)
        np.clip(codes, -top, top - 1, out=codes)
        along = (weighted * codes).sum(axis=0)
        codes *= codes
        codes *= weights
        _keep_better(best, scales, along, codes.sum(axis=0))
    return scales


def table_scales(x: F32Array, weights: F32Array, table: tuple[int, ...], tries: Iterable[float]) -> F32Array:
    """Scales s of ``x ≈ s · value`` with values of an ascending `table`; the peak takes a value near the first."""
    peak = signed_peaks(x)
    inverse = np.where(np.abs(peak) < _TINY, np.float32(0), np.float32(1) / np.where(peak == 0, np.float32(1), peak))
    values = np.array(table, np.float32)
    weighted = weights * x
    best, scales = np.full(len(peak), np.float32(-1)), peak / values[0]
    for more in tries:
        chosen = values[nearest_index((inverse * np.float32(table[0] + more)) * x, table)]
        along = (weighted * chosen).sum(axis=0)
        chosen *= chosen
        chosen *= weights
        _keep_better(best, scales, along, chosen.sum(axis=0))
    return scales


def _keep_better(best: F32Array, scales: F32Array, along: F32Array, power: F32Array) -> None:
    """Keep the fit ``along / power`` if its share of the weighted squares, ``along² / power``, is the largest."""
    good = power > 0
    power = np.where(good, power, np.float32(1))
    share = along * along / power
    better = good & (share > best)
    best[better] = share[better]
    scales[better] = (along / power)[better]


def nearest_index(x: F32Array, table: tuple[int, ...]) -> np.ndarray:
    """Index of the nearest value of an ascending `table` of int8.

    The midpoint of two integers is a multiple of a half, so a table of half steps suffices.
    """
    halves = np.clip(np.floor(x + x), -256, 255).astype(np.int16)
    return _half_steps(table)[halves + np.int16(256)]


@cache
def _half_steps(table: tuple[int, ...]) -> np.ndarray:
    """Index of the value nearest to the middle of each half step from −128 to 128."""
    middles = (np.arange(-256, 256) + 0.5) / 2
    return np.abs(middles[:, None] - np.array(table)).argmin(axis=1).astype(np.uint8)


def affine_scales(x: F32Array, weights: F32Array, top: int, tries: Iterable[float]) -> tuple[F32Array, F32Array]:
    """Scales s ≥ 0 and floors f ≤ 0 of ``x ≈ s · code + f`` with codes from 0 to `top`.

    Parameters
    ----------
    tries : offsets of the greatest number's code from `top` to try, before clipping to `top`
    """
    low = np.minimum(x.min(axis=0), np.float32(0))
    spread = x.max(axis=0) - low
    flat = spread < _TINY
    inverse = np.where(flat, np.float32(0), np.float32(1) / np.where(flat, np.float32(1), spread))
    above, weighted = x - low, weights * x
    count, sum_x = weights.sum(axis=0, dtype=np.float64), weighted.sum(axis=0, dtype=np.float64)
    scale, floor = spread.astype(np.float64) / top, low.astype(np.float64)
    least = np.full(len(low), np.inf)
    for more in tries:
        codes = np.rint((inverse * np.float32(top + more)) * above)
        np.clip(codes, 0, top, out=codes)
        sum_cx = (weighted * codes).sum(axis=0, dtype=np.float64)
        by_weight = weights * codes
        sum_c = by_weight.sum(axis=0, dtype=np.float64)
        by_weight *= codes
        sum_cc = by_weight.sum(axis=0, dtype=np.float64)
        determinant = count * sum_cc - sum_c * sum_c
        good = determinant > 0
        determinant = np.where(good, determinant, 1.0)
        s = (count * sum_cx - sum_x * sum_c) / determinant
        f = (sum_cc * sum_x - sum_c * sum_cx) / determinant
        upward = f > 0
        s = np.where(upward, sum_cx / np.where(sum_cc > 0, sum_cc, 1.0), s)
        f = np.where(upward, 0.0, f)
        # The weighted squared error without Σ w x², which all candidates share.
        error = s * s * sum_cc + f * f * count + 2 * (s * f * sum_c - s * sum_cx - f * sum_x)
        better = good & (error < least)
        least[better], scale[better], floor[better] = error[better], s[better], f[better]
    return scale.astype(np.float32), floor.astype(np.float32)


def stored_half(x: F32Array) -> tuple[np.ndarray, F32Array]:
    """`x` as float16, saturating, and as the float32 that it then represents."""
    half = np.clip(x, np.float32(-65504), np.float32(65504)).astype(np.float16)
    return half, half.astype(np.float32)


def divide_or_zero(x: F32Array, by: F32Array) -> F32Array:
    """``x / by``, and 0 where `by` is 0."""
    return np.where(by == 0, np.float32(0), x / np.where(by == 0, np.float32(1), by))
