"""Search of group scales that minimise the weighted squared error of the rounded values.

The weights are the mean squares of the inputs: elements with large inputs matter most. A range of scales around that of
plain rounding is tried; for the resulting codes, the least squares scale (and offset) is computed, as ggml's quantisers
do with an importance matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.dtypes import Scheme
from volumetric.dtypes.rounding import cast_saturating

_STEPS = np.linspace(0.7, 1.1, 13, dtype=np.float32)
"""Factors on the scale of plain rounding that are tried."""


class RoundingRule(NamedTuple):
    """Conversion of values of a row to codes: ``clip(rint((x − offset) / scale), low, high)``, in float32."""

    scale: F32Array
    offset: F32Array
    low: int
    high: int

    def codes(self, x: F32Array) -> F32Array:
        """Codes of ``[rows, …]``, with one scale for each row; 0 if the scale is 0."""
        shape = (-1, *(1,) * (x.ndim - 1))
        scale, offset = self.scale.reshape(shape), self.offset.reshape(shape)
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
        return np.clip(np.rint((x - offset) * inverse), self.low, self.high)

    def values(self, codes: F32Array) -> F32Array:
        """Values of the codes ``[rows, …]``."""
        shape = (-1, *(1,) * (codes.ndim - 1))
        return codes * self.scale.reshape(shape) + self.offset.reshape(shape)


def search(x: F32Array, importance: F32Array, scheme: Scheme) -> RoundingRule:
    """Return the rule for one group of each row.

    Parameters
    ----------
    x : ``[rows, group]``
    importance : ``[group]``, weights of the squared errors
    scheme : integers with scales, and offsets if unsigned
    """
    bits, host = scheme.dtype.bits, scheme.scale_dtype.host if scheme.scale_dtype else np.dtype(np.float32)
    weight = np.maximum(importance.astype(np.float32), np.finfo(np.float32).tiny)
    if scheme.has_offset:
        return _affine(x, weight, (1 << bits) - 1, host)
    return _symmetric(x, weight, 1 << (bits - 1), host)


def _symmetric(x: F32Array, weight: F32Array, half: int, host: np.dtype[Any]) -> RoundingRule:
    peak = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)[:, 0]
    zero = np.zeros_like(peak)
    best, least = zero, np.full(len(x), np.inf, np.float32)
    for step in _STEPS:
        rule = RoundingRule(peak / np.float32(-half) * step, zero, -half, half - 1)
        codes = rule.codes(x)
        square = (codes * codes) @ weight
        fitted = np.divide((x * codes) @ weight, square, out=np.zeros_like(square), where=square > 0)
        rule = _as_stored(RoundingRule(fitted, zero, -half, half - 1), host)
        error = _error(x, weight, rule)
        best, least = np.where(error < least, rule.scale, best), np.minimum(error, least)
    return RoundingRule(np.asarray(best, np.float32), zero, -half, half - 1)


def _affine(x: F32Array, weight: F32Array, levels: int, host: np.dtype[Any]) -> RoundingRule:
    low, high = np.minimum(x.min(1), 0), np.maximum(x.max(1), 0)
    total, half = np.float32(weight.sum()), np.float32(0.5)
    best = [np.zeros_like(low)] * 2
    least = np.full(len(x), np.inf, np.float32)
    for step in _STEPS:
        middle, reach = (low + high) * half, (high - low) * half * step
        rule = RoundingRule(reach * np.float32(2 / levels), middle - reach, 0, levels)
        codes = rule.codes(x)
        # Least squares of x against scale · code + offset.
        c, cc, v, cv = codes @ weight, (codes * codes) @ weight, x @ weight, (x * codes) @ weight
        spread = total * cc - c * c
        scale = np.divide(total * cv - c * v, spread, out=rule.scale.copy(), where=spread > 0)
        rule = _as_stored(RoundingRule(scale, np.asarray((v - scale * c) / total, np.float32), 0, levels), host)
        error = _error(x, weight, rule)
        best = [np.where(error < least, new, old) for new, old in zip((rule.scale, rule.offset), best, strict=True)]
        least = np.minimum(error, least)
    return RoundingRule(np.asarray(best[0], np.float32), np.asarray(best[1], np.float32), 0, levels)


def _error(x: F32Array, weight: F32Array, rule: RoundingRule) -> F32Array:
    off = x - rule.values(rule.codes(x))
    return np.asarray((off * off) @ weight, np.float32)


def _as_stored(rule: RoundingRule, host: np.dtype[Any]) -> RoundingRule:
    """The rule with scale and offset rounded to their stored types."""
    scale, offset = (cast_saturating(part, host).astype(np.float32) for part in (rule.scale, rule.offset))
    return RoundingRule(scale, offset, rule.low, rule.high)
