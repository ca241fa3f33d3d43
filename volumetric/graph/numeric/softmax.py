"""Softmax over the last axis, its logarithm and its gradient, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from volumetric.base._typing import Array


def subtract_max(x: Array, out: Array | None = None) -> Array:
    """Shift the last axis so that its maximum is 0; rows that are all -inf stay, rows with NaN or +inf become NaN."""
    top = x.max(axis=-1, keepdims=True)
    return np.subtract(x, np.where(np.isneginf(top), 0, np.where(np.isposinf(top), math.nan, top)), out=out)


def softmax(x: Array) -> Array:
    """Softmax over the last axis; a row that is all -inf becomes zeros rather than NaN."""
    e = np.exp(subtract_max(x))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def log_softmax(x: Array) -> Array:
    """``log softmax(x)`` over the last axis; a row that is all -inf becomes NaN."""
    shifted = subtract_max(x)
    with np.errstate(invalid="ignore"):
        return shifted - _log_total(shifted)


def log_likelihoods(logits: Array, ids: Array) -> Array:
    """Return ``log softmax(logits)[id]`` of each row, ``[T]``; overwrites `logits`, which may be large.

    Parameters
    ----------
    logits : ``[T, V]``, overwritten
    ids : the class of each row, ``[T]``
    """
    shifted = subtract_max(logits, out=logits)
    picked = np.take_along_axis(shifted, ids[:, None], -1)
    with np.errstate(invalid="ignore"):
        return (picked - _log_total(shifted, out=shifted))[:, 0]


def _log_total(shifted: Array, out: Array | None = None) -> Array:
    """Return ``log Σ exp`` over the last axis, which stays with size 1; `out` is a buffer for the exponentials."""
    with np.errstate(divide="ignore"):
        return np.log(np.exp(shifted, out=out).sum(-1, keepdims=True))


def softmax_vjp(y: Array, gy: Array) -> Array:
    """Gradient of the input of `softmax`, from its output."""
    return y * (gy - (gy * y).sum(axis=-1, keepdims=True))
