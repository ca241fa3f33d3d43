"""Pairs of numbers that turn and shrink from step to step: a linear recurrence of complex numbers, in real ones."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array


def turn(s: Array, g: Array, phi: Array) -> Array:
    """``R s`` with ``R = [[g, -φ], [φ, g]]`` for ``[…, 2 F]``, the first parts of all pairs before the second ones."""
    a, b = np.split(s, 2, axis=-1)
    return np.concatenate([g * a - phi * b, phi * a + g * b], axis=-1)


def rotate_scan(u: Array, g: Array, phi: Array, start: Array, keep: Array | None = None) -> Array:
    """``s[t] = keep[t] · R s[t - 1] + u[t]`` over axis 1 of ``[B, T, 2 F]``, with ``s[-1] = start``.

    Where ``keep [B, T]`` is 0 nothing of the step before is left, not even NaN.
    """
    s = np.empty_like(u)
    held = start
    for t in range(u.shape[1]):
        passed = turn(held, g, phi)
        if keep is not None:
            passed = np.where(keep[:, t, None] == 0, 0, passed * keep[:, t, None])
        held = s[:, t] = passed + u[:, t]
    return s


def rotate_scan_back(u: Array, g: Array, phi: Array, keep: Array | None = None) -> Array:
    """``s[t] = keep[t + 1] · Rᵀ s[t + 1] + u[t]`` over axis 1, with ``s[T - 1] = u[T - 1]``."""
    kept = None if keep is None else np.concatenate([keep[:, 1:], np.zeros_like(keep[:, :1])], 1)[:, ::-1]
    return rotate_scan(u[:, ::-1], g, -phi, np.zeros_like(u[:, 0]), kept)[:, ::-1] if u.shape[1] else u
