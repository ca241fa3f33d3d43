"""The selective scan of state-space layers: a linear recurrence whose decay, input and output follow from each row.

Mamba (https://arxiv.org/abs/2312.00752) gives each channel and element of the state a decay of its own; Mamba-2
(https://arxiv.org/abs/2405.21060) gives one to each head of channels. Both are this scan: Mamba's heads are channels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from volumetric._typing import Array
from volumetric.graph.state import StateSpec

STATE = "state"
"""State that holds what a scan has summed up."""


def scan_state(size: int, channels: int) -> StateSpec:
    """State of a scan, element by element of all channels."""
    return StateSpec(name=STATE, shape=(size, channels), kind="fixed")


def softplus(x: Array) -> Array:
    """``log(1 + e**x)``, which neither overflows nor loses small values."""
    with np.errstate(invalid="ignore"):  # of NaN, which stays
        return np.logaddexp(x, x.dtype.type(0))


def linear_scan(u: Array, a: Array, start: Array | None = None, keep: Array | None = None) -> Array:
    """``s[t] = keep[t] · a[t] ⊙ s[t - 1] + u[t]`` over axis 1, with ``s[-1] = start``, or zeros.

    Parameters
    ----------
    u : ``[B, T, …]``
    a : the same, or broadcast to it
    start : ``[B, …]``
    keep : ``[B, T]``; where it is 0 nothing of the step before is left, not even NaN
    """
    s = np.empty_like(u)
    a = np.broadcast_to(a, u.shape)
    held = np.zeros_like(u[:, 0]) if start is None and u.shape[1] else start
    for t in range(u.shape[1]):
        passed = a[:, t] * held
        if keep is not None:
            now = keep[:, t].reshape(-1, *(1,) * (passed.ndim - 1))
            passed = np.where(now == 0, 0, passed * now)
        held = s[:, t] = passed + u[:, t]
    return s


def linear_scan_back(u: Array, a: Array, keep: Array | None = None) -> Array:
    """``s[t] = keep[t + 1] · a[t + 1] ⊙ s[t + 1] + u[t]`` over axis 1, with ``s[T - 1] = u[T - 1]``."""
    a = np.broadcast_to(a, u.shape)
    later = np.concatenate([a[:, 1:], np.zeros_like(a[:, :1])], 1)
    kept = None if keep is None else np.concatenate([keep[:, 1:], np.zeros_like(keep[:, :1])], 1)[:, ::-1]
    return linear_scan(u[:, ::-1], later[:, ::-1], None, kept)[:, ::-1]


class Given(NamedTuple):
    """What a selective scan takes.

    Attributes
    ----------
    x : ``[B, T, heads, head_dim]``
    dt : ``[B, T, heads]``, 0 or more
    a : ``[heads, size]``, or ``[heads, 1]`` where a head has one decay; below 0
    b, c : ``[B, T, groups, size]``; heads share them in equal groups
    """

    x: Array
    dt: Array
    a: Array
    b: Array
    c: Array


class Scanned(NamedTuple):
    """What `selective_scan` gives: y, and what the gradient needs."""

    y: Array
    decay: Array
    states: Array
    keep: Array | None


def selective_scan(given: Given, start: Array, keep: Array | None = None) -> Scanned:
    """``s[t] = keep[t] · exp(dt[t] a) ⊙ s[t - 1] + dt[t] b[t] ⊗ x[t]`` and ``y[t] = c[t] · s[t]``, head by head.

    `start` is s before the first step, ``[B, size, heads, head_dim]``. Where `keep`, ``[B, T]``, is 0, nothing of the
    step before is left.
    """
    x, dt, a, b, c = given
    heads = x.shape[2]
    step = dt[:, :, None, :, None]
    decay = np.exp(step * a.T[:, :, None])
    states = linear_scan(_by_head(b, heads) * (step * x[:, :, None]), decay, start, keep)
    y = np.sum(_by_head(c, heads) * states, axis=2)
    return Scanned(y, decay, np.concatenate([start[:, None], states], 1), keep)


def _by_head(grouped: Array, heads: int) -> Array:
    """``[B, T, groups, size]`` → ``[B, T, size, heads, 1]``."""
    return np.repeat(grouped, heads // grouped.shape[2], axis=2).swapaxes(2, 3)[..., None]
