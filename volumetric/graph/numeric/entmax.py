"""Sparsemax and entmax over the last axis, and their gradient, in NumPy."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.graph.numeric.softmax import centred

_HALVINGS = 64
"""Halve an interval no longer than 1 below the distance of neighbouring float64 numbers."""


def sparsemax(x: Array) -> Array:
    """Nearest point of the simplex, exactly: ``max(x - τ, 0)`` with the τ that makes the last axis sum to 1.

    Martins & Astudillo 2016 (arXiv 1602.02068), algorithm 1. Rows that are all -inf become zeros.
    """
    z = centred(x.astype(np.float64, copy=False))
    falling = -np.sort(-z, axis=-1)
    total = falling.cumsum(axis=-1)
    inside = 1 + np.arange(1, z.shape[-1] + 1) * falling > total
    size = inside.sum(axis=-1, keepdims=True)
    kept = np.take_along_axis(total, np.maximum(size - 1, 0), axis=-1)
    threshold = np.where(size == 0, 0, (kept - 1) / np.maximum(size, 1))
    return np.maximum(z - threshold, 0).astype(x.dtype, copy=False)


def entmax(x: Array, alpha: float) -> Array:
    """α-entmax over the last axis, ``max((α - 1) x - τ, 0)^(1 / (α - 1))`` with the τ that makes it sum to 1.

    τ is found by bisection down to the last bit of float64 (Blondel, Martins & Niculae 2019, arXiv 1901.02324;
    Peters et al. 2019, arXiv 1905.05702). Rows that are all -inf become zeros.
    """
    z = (alpha - 1) * centred(x.astype(np.float64, copy=False))
    power = 1 / (alpha - 1)
    low = np.full_like(z[..., :1], -1.0)  # the largest logit alone gives a sum of 1 or more
    high = np.full_like(low, -(z.shape[-1] ** (1 - alpha)))  # as many logits as there are, all equal, give 1 at most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = (np.maximum(z - middle, 0) ** power).sum(axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    y = np.maximum(z - low, 0) ** power
    total = y.sum(axis=-1, keepdims=True)
    return (y / np.where(total == 0, 1, total)).astype(x.dtype, copy=False)


def entmax_vjp(y: Array, gy: Array, alpha: float) -> Array:
    """Gradient of the input of `entmax` (or, with α = 2, of `sparsemax`) from its output.

    ``s ⊙ (gy - Σ s gy / Σ s)`` with ``s = y^(2 - α)`` where y is above 0, and 0 elsewhere; NaN stays.
    """
    s = np.where((y == 0) | np.isnan(y), y, y ** y.dtype.type(2 - alpha))  # NaN to the power of 0 would be 1
    total = s.sum(axis=-1, keepdims=True)
    return s * (gy - (s * gy).sum(axis=-1, keepdims=True) / np.where(total == 0, 1, total))
