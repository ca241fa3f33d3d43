"""Operations on the rows of a matrix ``[R, W]``: softmax and its sparse relatives, top-k selection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.gates import largest_of_row
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.graph.unary import power
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, load_part_or, store_part, where_equal
from volumetric.devices.cpu.kernels.maths import exp, log
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.simd import largest, splat, total
from volumetric.devices.cpu.kernels.softmax import fill_row, row_peak, softmax_of_row
from volumetric.devices.cpu.kernels.step_words import number, word

f32 = np.float32

ROW_ARGUMENTS = ("x", "y", "rows", "width")
GRAD_ARGUMENTS = ("y", "g", "gx", "rows", "width")


def softmax(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Softmax of each row."""
    rows, width = word(step, 2), word(step, 3)
    for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
        softmax_of_row(word(step, 0) + 4 * row * width, word(step, 1) + 4 * row * width, width)


@kernel
def _dot(a, b, width):
    sums = splat(f32(0.0))
    for i in range(0, width, 16):
        sums = sums + load_part(a + 4 * i, width - i) * load_part(b + 4 * i, width - i)
    return total(sums)


def softmax_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """``y (g - Σ y g)``."""
    rows, width = word(step, 3), word(step, 4)
    for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
        y = word(step, 0) + 4 * row * width
        g = word(step, 1) + 4 * row * width
        out = word(step, 2) + 4 * row * width
        mean = splat(_dot(y, g, width))
        for i in range(0, width, 16):
            left = width - i
            store_part(out + 4 * i, load_part(y + 4 * i, left) * (load_part(g + 4 * i, left) - mean), left)


def sparsemax(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Nearest point of the simplex: ``max(x - τ, 0)``; τ by dropping elements below it (Michelot 1986).

    ``x - max x`` is stored to memory first: in one expression with τ the compiler may combine the two subtrahends,
    whose sum loses τ if x is large.
    """
    rows, width = word(step, 2), word(step, 3)
    for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
        x = word(step, 0) + 4 * row * width
        y = word(step, 1) + 4 * row * width
        highest = row_peak(x, width)
        if highest == f32(-math.inf):
            fill_row(y, width, f32(0.0))
            continue
        if np.isnan(highest):
            fill_row(y, width, f32(math.nan))
            continue
        for i in range(0, width, 16):
            store_part(y + 4 * i, load_part(x + 4 * i, width - i) - splat(highest), width - i)
        threshold = -1.0 - 1e-9  # elements further below the maximum are outside
        before = -1
        count = 0
        while count != before:
            before, count = count, 0
            sums = 0.0
            for i in range(width):
                z = np.float64(load_f32(y + 4 * i))
                if z > threshold:
                    sums += z
                    count += 1
            threshold = (sums - 1.0) / count
        for i in range(width):
            z = np.float64(load_f32(y + 4 * i)) - threshold
            store_f32(y + 4 * i, f32(max(z, 0.0)))


@kernel
def _entmax_sum(x, width, scale, shift, threshold, inverse, out, keep):
    """Sum of ``max(scale (x - shift) - threshold, 0)**inverse``, which is also stored if `keep`."""
    zero = splat(f32(0.0))
    lowest = splat(f32(-math.inf))
    sums = zero
    for i in range(0, width, 16):
        z = (load_part_or(x + 4 * i, width - i, lowest) - splat(shift)) * splat(scale) - splat(threshold)
        z = largest(z, zero)
        value = z * z if inverse == f32(2.0) else power(z, splat(inverse))
        if keep:
            store_part(out + 4 * i, value, width - i)
        sums = sums + value
    return total(sums)


ENTMAX_ARGUMENTS = ("x", "y", "rows", "width", "scale", "inverse")
"""`scale` is α - 1 and `inverse` one over it."""


def entmax(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """``max((α - 1) x - τ, 0)**(1 / (α - 1))``, τ by bisection (Blondel et al. 2019, arXiv 1901.02324)."""
    rows, width = word(step, 2), word(step, 3)
    scale, inverse = number(step, 4), number(step, 5)
    for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
        x = word(step, 0) + 4 * row * width
        y = word(step, 1) + 4 * row * width
        highest = row_peak(x, width)
        if highest == f32(-math.inf):
            fill_row(y, width, f32(0.0))
            continue
        if np.isnan(highest):
            fill_row(y, width, f32(math.nan))
            continue
        low = f32(-1.0)
        high = f32(0.0)
        for _ in range(30):
            middle = f32(0.5) * (low + high)
            if _entmax_sum(x, width, scale, highest, middle, inverse, y, False) >= f32(1.0):
                low = middle
            else:
                high = middle
        factor = splat(f32(1.0) / _entmax_sum(x, width, scale, highest, low, inverse, y, True))
        for i in range(0, width, 16):
            store_part(y + 4 * i, load_part(y + 4 * i, width - i) * factor, width - i)


ENTMAX_GRAD_ARGUMENTS = (*GRAD_ARGUMENTS, "exponent")


def entmax_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """``s (g - Σ s g / Σ s)`` with ``s = y**exponent`` where y is above 0, else 0; the exponent is 2 - α."""
    rows, width = word(step, 3), word(step, 4)
    exponent = splat(number(step, 5))
    zero = splat(f32(0.0))
    for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
        y = word(step, 0) + 4 * row * width
        g = word(step, 1) + 4 * row * width
        out = word(step, 2) + 4 * row * width
        weights = zero
        products = zero
        for i in range(0, width, 16):
            value = load_part(y + 4 * i, width - i)
            s = where_equal(value, zero, zero, exp(log(value) * exponent))
            store_part(out + 4 * i, s, width - i)
            weights = weights + s
            products = products + s * load_part(g + 4 * i, width - i)
        whole = total(weights)
        mean = splat(total(products) / (f32(1.0) if whole == f32(0.0) else whole))
        for i in range(0, width, 16):
            left = width - i
            store_part(out + 4 * i, load_part(out + 4 * i, left) * (load_part(g + 4 * i, left) - mean), left)


KEEP_ARGUMENTS = (*ROW_ARGUMENTS, "k")


def keep_largest(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Keep the k largest of each row, set others to -inf; the earlier of equals wins; NaN stays, ranking last."""
    rows, width = word(step, 2), word(step, 3)
    for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
        largest_of_row(word(step, 0) + 4 * row * width, word(step, 1) + 4 * row * width, width, word(step, 4))
