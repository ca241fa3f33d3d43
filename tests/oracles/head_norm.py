"""In NumPy: the norm of cells with heads: each head's part of a row about its own mean, with one gain a."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import rows
from volumetric.base._typing import Array
from volumetric.graph.numeric.norms import without_mean
from volumetric.layers.head_norm import EPS


def head_norm(x: Array, gain: Array, heads: int) -> tuple[Array, tuple[Array, Array]]:
    """Return ``(x - mean) / √(var + eps) · gain`` of ``[…, width]``, head by head, and what the VJP needs."""
    parts = x.reshape(*x.shape[:-1], heads, -1)
    centred = without_mean(parts)
    scale = 1 / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + x.dtype.type(EPS))
    normal = centred * scale
    return normal.reshape(x.shape) * gain, (normal, scale)


def head_norm_vjp(gain: Array, kept: tuple[Array, Array], gy: Array, out: dict[str, Array]) -> Array:
    """Put the gradient of the gain into `out`; return that of x."""
    normal, scale = kept
    out["norm.weight"] = rows(gy * normal.reshape(gy.shape)).sum(0)
    inner = (gy * gain).reshape(normal.shape)
    along = np.mean(inner * normal, axis=-1, keepdims=True)
    return (scale * (inner - inner.mean(axis=-1, keepdims=True) - normal * along)).reshape(gy.shape)
