"""Normalisation over the last axis, and its gradient, in NumPy."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array


def without_mean(x: Array) -> Array:
    """Return ``x - mean(x)`` over the last axis, precise even for a large mean, and the rounding error of the mean."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred - centred.mean(axis=-1, keepdims=True)


def rms_norm(x: Array, gain: Array, eps: float) -> tuple[Array, Array]:
    """Return ``x / √(mean(x²) + eps) · gain`` over the last axis, and the reciprocal root ``[..., 1]``."""
    scale = 1 / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + x.dtype.type(eps))
    return x * scale * gain, scale
