"""A short causal convolution of each channel over the rows of a sequence, going on from the last rows before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from volumetric._typing import Array
from volumetric.layers.base import Memory, ParamSpec
from volumetric.layers.state import StateSpec

PAST = "past"
"""State that holds the last rows before a call."""


def conv_params(prefix: str, channels: int, taps: int, *, bias: bool) -> tuple[ParamSpec, ...]:
    """Parameters ``{prefix}weight [channels, 1, taps]``, as torch's Conv1d by channel, and ``{prefix}bias``."""
    weight = ParamSpec(name=f"{prefix}weight", shape=(channels, 1, taps), packable=False)
    own = ParamSpec(name=f"{prefix}bias", shape=(channels,), init="zeros", packable=False)
    return (weight, own) if bias else (weight,)


def conv_state(channels: int, taps: int) -> StateSpec:
    """The rows before a call that its first rows see."""
    return StateSpec(name=PAST, shape=(taps - 1, channels), kind="fixed")


class Convolved(NamedTuple):
    """What `causal_conv` gives: y, and the rows with those before them, which the gradient needs."""

    y: Array
    rows: Array


def causal_conv(weight: Array, bias: Array | None, x: Array, memory: Memory | None) -> Convolved:
    """``y[t] = Σ_k w[:, k] · x[t + k - (taps - 1)] + b`` over ``[…, T, channels]``.

    Before the first row there is what `memory` holds, or zeros.
    """
    channels, _, taps = weight.shape
    shape = (*x.shape[:-2], taps - 1, channels)
    past = np.zeros(shape, x.dtype) if memory is None else memory.read(PAST, shape, x.dtype)
    rows = np.concatenate([past, x], axis=-2)
    if memory is not None:
        memory.write(PAST, rows[..., rows.shape[-2] - (taps - 1) :, :].copy())
    length = x.shape[-2]
    y = sum((rows[..., k : k + length, :] * weight[:, 0, k] for k in range(taps)), np.zeros_like(x))
    return Convolved(y if bias is None else y + bias, rows)


def causal_conv_vjp(weight: Array, rows: Array, g: Array) -> tuple[Array, Array]:
    """Return the gradients of x and of the weight of `causal_conv`; that of a bias is the sum of g."""
    taps, length = weight.shape[2], g.shape[-2]
    g_rows = np.zeros_like(rows)
    g_weight = np.zeros_like(weight)
    for k in range(taps):
        g_rows[..., k : k + length, :] += g * weight[:, 0, k]
        g_weight[:, 0, k] = (g * rows[..., k : k + length, :]).reshape(-1, g.shape[-1]).sum(0)
    return g_rows[..., taps - 1 :, :], g_weight
