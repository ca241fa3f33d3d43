"""A short causal convolution of each channel over the rows of a sequence, going on from the last rows before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.oracles.memory import Memory, start_of
from volumetric.base._typing import Array
from volumetric.layers.causal_conv import PAST


class Convolved(NamedTuple):
    """What `causal_conv` gives: y; the rows with those before them, and what is seen of them, which gradients need."""

    y: Array
    rows: Array
    seen: list[Array] | None


def seen_of(keep: Array | None, taps: int) -> list[Array] | None:
    """For each lag from 0 on, which rows ``[…, T]`` see so far back: 0 where their sequence began in between."""
    if keep is None:
        return None
    length = keep.shape[-1]
    kept = np.concatenate([np.ones((*keep.shape[:-1], taps - 1), keep.dtype), keep], axis=-1)
    seen = [np.ones_like(keep)]
    for lag in range(1, taps):
        first = taps - lag
        seen.append(seen[-1] * kept[..., first : first + length])
    return seen


def causal_conv(
    weight: Array, bias: Array | None, x: Array, memory: Memory | None, keep: Array | None = None
) -> Convolved:
    """``y[t] = Σ_k w[:, k] · x[t + k - (taps - 1)] + b`` over ``[…, T, channels]``.

    Before the first row there is what `memory` holds, or zeros.

    Parameters
    ----------
    weight : ``[channels, 1, taps]`` of each channel alone, or ``[channels, channels, taps]``
    keep : ``[…, T]``; where it is 0, a row and those after it see none of the rows before, not even NaN
    """
    channels, _, taps = weight.shape
    shape = (*x.shape[:-2], taps - 1, channels)
    past = start_of(memory, PAST, shape, x.dtype)
    rows = np.concatenate([past, x], axis=-2)
    length, seen = x.shape[-2], seen_of(keep, taps)
    if memory is not None and length:
        left = rows[..., rows.shape[-2] - (taps - 1) :, :].copy()
        for lag in range(taps - 1 if seen else 0):
            left[..., taps - 2 - lag, :] = seen_rows(left[..., taps - 2 - lag, :], seen, lag, -1)
        memory.write(PAST, left)
    y = np.zeros_like(x)
    for k in range(taps):
        y += _tap(weight, k, seen_rows(rows[..., k : k + length, :], seen, taps - 1 - k))
    return Convolved(y if bias is None else y + bias, rows, seen)


def seen_rows(x: Array, seen: list[Array] | None, lag: int, at: int | slice = slice(None)) -> Array:
    """Return rows of some lag, or zeros where they are not seen; `at` says of which steps they are."""
    return x if seen is None else np.where(seen[lag][..., at, None] != 0, x, x.dtype.type(0))


def _tap(weight: Array, k: int, rows: Array) -> Array:
    return rows * weight[:, 0, k] if weight.shape[1] == 1 else rows @ weight[:, :, k].T


def causal_conv_vjp(weight: Array, rows: Array, g: Array, seen: list[Array] | None = None) -> tuple[Array, Array]:
    """Return the gradients of x and of the weight of `causal_conv`; that of a bias is the sum of g."""
    taps, length, width = weight.shape[2], g.shape[-2], g.shape[-1]
    g_rows = np.zeros_like(rows)
    g_weight = np.zeros_like(weight)
    for k in range(taps):
        met, own = seen_rows(rows[..., k : k + length, :], seen, taps - 1 - k), seen_rows(g, seen, taps - 1 - k)
        if weight.shape[1] == 1:
            g_rows[..., k : k + length, :] += own * weight[:, 0, k]
            g_weight[:, 0, k] = (g * met).reshape(-1, width).sum(0)
        else:
            g_rows[..., k : k + length, :] += own @ weight[:, :, k]
            g_weight[:, :, k] = g.reshape(-1, width).T @ met.reshape(-1, width)
    return g_rows[..., taps - 1 :, :], g_weight
