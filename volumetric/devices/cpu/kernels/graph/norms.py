"""RMS and layer norm of rows, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.reduce import contiguous
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.prepare import inverse_root, variance_about
from volumetric.devices.cpu.kernels.simd import first_lanes, splat, total
from volumetric.devices.cpu.kernels.step_words import number, word

f32 = np.float32

NORM_ARGUMENTS = ("x", "gain", "bias", "y", "stats", "rows", "width", "eps", "offset")
"""`gain` and `bias` may be 0 = none; `offset` is added to the gain."""


@kernel
def _gain(gain, i, left, offset):
    if gain == 0:
        return splat(f32(1.0))
    return load_part(gain + 4 * i, left) + offset


@kernel
def _sums(x, width, mean):
    """Sums of ``x - mean`` and of ``(x - mean)²``."""
    zero = splat(f32(0.0))
    centre = splat(mean)
    sums = zero
    squares = zero
    for i in range(0, width, 16):
        value = first_lanes(width - i, load_part(x + 4 * i, width - i) - centre, zero)
        sums = sums + value
        squares = squares + value * value
    return total(sums), total(squares)


@kernel
def statistics(layer, x, stats, width, eps):
    """Write (mean, 1 / spread, rounding error of the mean) of a row to `stats`; the mean is 0 unless `layer`."""
    zero = splat(f32(0.0))
    mean = f32(0.0)
    if layer:
        mean = total(contiguous(False, x, width, zero, zero)) / f32(width)
    rest, squares = _sums(x, width, mean)
    shift = rest / f32(width) if layer else f32(0.0)
    store_f32(stats, mean)
    store_f32(stats + 4, inverse_root(variance_about(squares, width, shift), eps))
    store_f32(stats + 8, shift)


@kernel
def normalise_lanes(x, left, stats):
    """Up to 16 normalised numbers: mean and shift subtracted, times the inverse spread."""
    mean, scale, shift = load_f32(stats), load_f32(stats + 4), load_f32(stats + 8)
    return (load_part(x, left) - splat(mean) - splat(shift)) * splat(scale)


def norm(layer: int) -> Callable[..., None]:
    """RMS norm, or layer norm, of each row; `stats` gets (mean, 1 / spread, rounding error of the mean)."""

    def norm(step: Any, thread: Any, threads: Any, control: Any) -> None:
        gain, bias, rows, width = word(step, 1), word(step, 2), word(step, 5), word(step, 6)
        offset = splat(number(step, 8))
        for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
            x = word(step, 0) + 4 * row * width
            y = word(step, 3) + 4 * row * width
            stats = word(step, 4) + 12 * row
            statistics(layer, x, stats, width, number(step, 7))
            for i in range(0, width, 16):
                left = width - i
                value = normalise_lanes(x + 4 * i, left, stats) * _gain(gain, i, left, offset)
                if bias != 0:
                    value = value + load_part(bias + 4 * i, left)
                store_part(y + 4 * i, value, left)

    return norm


NORM_GRAD_ARGUMENTS = ("g", "x", "stats", "gain", "gx", "rows", "width", "offset")


def norm_grad(layer: int) -> Callable[..., None]:
    """Gradient of the rows: ``rstd (i - n mean(i n))`` with i = g gain, for layer norm minus ``rstd mean(i)`` too."""

    def norm_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
        gain, rows, width = word(step, 3), word(step, 5), word(step, 6)
        offset = splat(number(step, 7))
        zero = splat(f32(0.0))
        for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
            g = word(step, 0) + 4 * row * width
            x = word(step, 1) + 4 * row * width
            out = word(step, 4) + 4 * row * width
            stats = word(step, 2) + 12 * row
            scale = splat(load_f32(stats + 4))
            along = zero
            plain = zero
            for i in range(0, width, 16):
                left = width - i
                inner = load_part(g + 4 * i, left) * _gain(gain, i, left, offset)
                along = along + inner * normalise_lanes(x + 4 * i, left, stats)
                plain = plain + inner
            tilt = splat(total(along) / f32(width))
            shift = splat(total(plain) / f32(width)) if layer else zero
            for i in range(0, width, 16):
                left = width - i
                inner = load_part(g + 4 * i, left) * _gain(gain, i, left, offset)
                normal = normalise_lanes(x + 4 * i, left, stats)
                store_part(out + 4 * i, (inner - normal * tilt - shift) * scale, left)

    return norm_grad


PARAM_GRAD_ARGUMENTS = ("g", "x", "stats", "ggain", "gbias", "rows", "width")


def norm_param_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """``Σ g n`` and, unless its address is 0, ``Σ g`` over all rows."""
    rows, width = word(step, 5), word(step, 6)
    zero = splat(f32(0.0))
    blocks = (width + 15) // 16
    for block in range(share(blocks, thread, threads), share(blocks, thread + 1, threads)):
        i = 16 * block
        left = width - i
        gain = zero
        bias = zero
        for row in range(rows):
            at = 4 * (row * width + i)
            g = load_part(word(step, 0) + at, left)
            gain = gain + g * normalise_lanes(word(step, 1) + at, left, word(step, 2) + 12 * row)
            bias = bias + g
        store_part(word(step, 3) + 4 * i, gain, left)
        if word(step, 4) != 0:
            store_part(word(step, 4) + 4 * i, bias, left)
