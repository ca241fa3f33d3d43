"""Causal convolutions of channels, sixteen at a time, forward and backward.

Forward, threads divide sequences and ranges of channels; backward, they divide vectors of channels, through all
sequences. The order of a sum does not depend on the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, load_strided, store_part
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i64, store_f32, store_i64
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import scratch, word

f32 = np.float32

DEPTHWISE_ARGUMENTS = ("x", "weight", "past", "bias", "keep", "y", "batch", "length", "width")
"""Addresses of ``[batch, length, width]``, ``[width, 1, taps]``, ``[batch, taps - 1, width]``, ``[width]`` or 0,
``[batch, length]`` or 0, and of the output."""
DEPTHWISE_BACK_ARGUMENTS = (
    "g",
    "x",
    "weight",
    "past",
    "keep",
    "g_x",
    "g_weight",
    "g_past",
    "g_bias",
    "batch",
    "length",
    "width",
)
_STRETCH = 8
"""Vectors of channels processed together: they take a few cache lines of each row."""


def depthwise_scratch(taps: int, length: int) -> int:
    """Bytes of scratch of both directions."""
    return 64 * taps * _STRETCH + 8 * length


@kernel
def _taps(weight, at, width, taps, room):
    """Weights of up to 16 channels from `at` on; the tap of the row itself comes first."""
    left = min(width - at, 16)
    for lag in range(taps):
        source = weight + 4 * (at * taps + taps - 1 - lag)
        if left == 16:
            store(room + 64 * lag, load_strided(source, 4 * taps))
        else:
            for lane in range(left):
                store_f32(room + 64 * lag + 4 * lane, load_f32(source + 4 * lane * taps))


@kernel
def _visible_rows(keep, t, before, taps):
    """Number of previous rows visible to row `t` of its sequence, given the number `before` for the row before."""
    if keep != 0:
        if load_f32(keep + 4 * t) == f32(0.0):
            return 0
    return min(before + 1, taps - 1)


def depthwise_conv(taps: int) -> Callable[..., None]:
    """Forward."""

    def depthwise_conv(step: Any, thread: Any, threads: Any, control: Any) -> None:
        length, width = word(step, 7), word(step, 8)
        blocks = (width + 15) // 16
        stretches = (blocks + _STRETCH - 1) // _STRETCH
        room = scratch(control, thread)
        items = word(step, 6) * stretches
        for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
            row, first = item // stretches, item % stretches * _STRETCH
            some = min(_STRETCH, blocks - first)
            for block in range(some):
                _taps(word(step, 1), 16 * (first + block), width, taps, room + 64 * taps * block)
            keep = 0 if word(step, 4) == 0 else word(step, 4) + 4 * row * length
            x = word(step, 0) + 4 * row * length * width
            past = word(step, 2) + 4 * row * (taps - 1) * width
            y = word(step, 5) + 4 * row * length * width
            reach = taps - 1
            for t in range(length):
                reach = _visible_rows(keep, t, reach, taps)
                for block in range(some):
                    at = 16 * (first + block)
                    left = width - at
                    total = splat(f32(0.0))
                    if word(step, 3) != 0:
                        total = load_part(word(step, 3) + 4 * at, left)
                    weights = room + 64 * taps * block
                    if left >= 16 and reach == taps - 1 and t >= taps - 1:
                        here = x + 4 * (t * width + at)
                        for lag in range(taps):
                            total = total + load(weights + 64 * lag) * load(here - 4 * lag * width)
                        store(y + 4 * (t * width + at), total)
                    else:
                        for lag in range(reach + 1):
                            source = x + 4 * (t - lag) * width
                            if lag > t:
                                source = past + 4 * (taps - 1 + t - lag) * width
                            total = total + load(weights + 64 * lag) * load_part(source + 4 * at, left)
                        store_part(y + 4 * (t * width + at), total, left)

    return depthwise_conv


@kernel
def _input_gradient(g, reaches, length, row_bytes, s, weights, taps, left):
    """Gradient of row `s`, negative for rows before the first: the sum over all rows that read it."""
    total = splat(f32(0.0))
    if s >= 0 and left >= 16 and reaches == 0 and s + taps <= length:
        for lag in range(taps):
            total = total + load(weights + 64 * lag) * load(g + (s + lag) * row_bytes)
        return total
    for lag in range(max(0, -s), min(taps, length - s)):
        if reaches != 0:
            if load_i64(reaches + 8 * (s + lag)) < lag:
                continue
        total = total + load(weights + 64 * lag) * load_part(g + (s + lag) * row_bytes, left)
    return total


@kernel
def _tap_gradient(g, x, past, reaches, length, row_bytes, lag, taps, left):
    """``Σ_t g[t] x[t - lag]`` over the rows of a sequence that see so far back; four sums hide latency."""
    zero = splat(f32(0.0))
    s0 = zero
    s1 = zero
    s2 = zero
    s3 = zero
    t = 0
    while t < min(lag, length):
        if reaches == 0 or load_i64(reaches + 8 * t) >= lag:
            source = past + (taps - 1 + t - lag) * row_bytes
            s0 = s0 + load_part(g + t * row_bytes, left) * load_part(source, left)
        t += 1
    back = x - lag * row_bytes
    if reaches == 0 and left >= 16:
        while length - t >= 4:
            s0 = s0 + load(g + t * row_bytes) * load(back + t * row_bytes)
            s1 = s1 + load(g + (t + 1) * row_bytes) * load(back + (t + 1) * row_bytes)
            s2 = s2 + load(g + (t + 2) * row_bytes) * load(back + (t + 2) * row_bytes)
            s3 = s3 + load(g + (t + 3) * row_bytes) * load(back + (t + 3) * row_bytes)
            t += 4
    while t < length:
        if reaches == 0 or load_i64(reaches + 8 * t) >= lag:
            s0 = s0 + load_part(g + t * row_bytes, left) * load_part(back + t * row_bytes, left)
        t += 1
    return (s0 + s1) + (s2 + s3)


@kernel
def _bias_gradient(g, length, row_bytes, left):
    """``Σ_t g[t]``."""
    zero = splat(f32(0.0))
    s0 = zero
    s1 = zero
    t = 0
    while length - t >= 2:
        s0 = s0 + load_part(g + t * row_bytes, left)
        s1 = s1 + load_part(g + (t + 1) * row_bytes, left)
        t += 2
    if t < length:
        s0 = s0 + load_part(g + t * row_bytes, left)
    return s0 + s1


def depthwise_back(taps: int) -> Callable[..., None]:
    """Gradients of x, the weights, the previous rows and the bias."""

    def depthwise_back(step: Any, thread: Any, threads: Any, control: Any) -> None:
        batch, length, width = word(step, 9), word(step, 10), word(step, 11)
        blocks = (width + 15) // 16
        row_bytes = 4 * width
        weights = scratch(control, thread)
        sums = weights + 64 * taps
        table = weights + 64 * taps * _STRETCH
        zero = splat(f32(0.0))
        for block in range(share(blocks, thread, threads), share(blocks, thread + 1, threads)):
            at = 16 * block
            left = min(width - at, 16)
            _taps(word(step, 2), at, width, taps, weights)
            for lag in range(taps):
                store(sums + 64 * lag, zero)
            bias = zero
            for row in range(batch):
                g = word(step, 0) + row * length * row_bytes + 4 * at
                x = word(step, 1) + row * length * row_bytes + 4 * at
                past = word(step, 3) + row * (taps - 1) * row_bytes + 4 * at
                g_x = word(step, 5) + row * length * row_bytes + 4 * at
                g_past = word(step, 7) + row * (taps - 1) * row_bytes + 4 * at
                reaches = 0
                if word(step, 4) != 0:
                    reaches = table
                    reach = taps - 1
                    for t in range(length):
                        reach = _visible_rows(word(step, 4) + 4 * row * length, t, reach, taps)
                        store_i64(table + 8 * t, reach)
                for s in range(1 - taps, 0):
                    gradient = _input_gradient(g, reaches, length, row_bytes, s, weights, taps, left)
                    store_part(g_past + (taps - 1 + s) * row_bytes, gradient, left)
                for s in range(length):
                    store_part(
                        g_x + s * row_bytes,
                        _input_gradient(g, reaches, length, row_bytes, s, weights, taps, left),
                        left,
                    )
                for lag in range(taps):
                    gradient = _tap_gradient(g, x, past, reaches, length, row_bytes, lag, taps, left)
                    store(sums + 64 * lag, load(sums + 64 * lag) + gradient)
                bias = bias + _bias_gradient(g, length, row_bytes, left)
            for lag in range(taps):
                for lane in range(left):
                    place = word(step, 6) + 4 * ((at + lane) * taps + taps - 1 - lag)
                    store_f32(place, load_f32(sums + 64 * lag + 4 * lane))
            store_part(word(step, 8) + 4 * at, bias, left)

    return depthwise_back
