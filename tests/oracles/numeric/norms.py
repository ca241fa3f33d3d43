"""In NumPy: normalisation over the last axis, and its gradient, in NumPy."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.numeric.norms import without_mean


def standardised(x: Array, eps: float) -> tuple[Array, Array]:
    """Return ``(x - mean) / √(var + eps)`` over the last axis, and the reciprocal root ``[..., 1]``."""
    centred = without_mean(x)
    scale = 1 / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + x.dtype.type(eps))
    return centred * scale, scale


def rms_norm_vjp(x: Array, gain: Array, scale: Array, gy: Array) -> tuple[Array, Array]:
    """Return the gradients of `x` and `gain`."""
    inner, normal = gy * gain, x * scale
    gx = scale * (inner - normal * np.mean(inner * normal, axis=-1, keepdims=True))
    return gx, (gy * normal).reshape(-1, gy.shape[-1]).sum(0)
