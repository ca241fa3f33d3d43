"""The product of one or two rows with a matrix whose rows are contiguous: the matrix is read once, row by row.

Panels would read it in narrow columns, each row in another memory page, which prefetchers do not follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.gemm import call_finish
from volumetric.devices.cpu.kernels.graph.thread_shares import flat_share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.memory_access import load_f32
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import scratch, word

STRIP = 512
"""Columns whose sums stay in a first-level cache, together with four rows of the matrix."""

STRIPS_ARGUMENTS = ("a", "b", "bias", "c", "m", "n", "k", "a_row", "a_k", "finish")

f32 = np.float32


@kernel
def _four_rows(a, a_k, b, b_k, c, count):
    """Add four rows of the matrix, each times its number, to `count` sums; k rises, as everywhere."""
    f0, f1 = splat(load_f32(a)), splat(load_f32(a + a_k))
    f2, f3 = splat(load_f32(a + 2 * a_k)), splat(load_f32(a + 3 * a_k))
    whole = count // 16 * 64
    for i in range(0, whole, 64):
        sums = load(c + i) + f0 * load(b + i)
        sums = sums + f1 * load(b + b_k + i)
        sums = sums + f2 * load(b + 2 * b_k + i)
        store(c + i, sums + f3 * load(b + 3 * b_k + i))
    left = count % 16
    if left > 0:
        sums = load_part(c + whole, left) + f0 * load_part(b + whole, left)
        sums = sums + f1 * load_part(b + b_k + whole, left)
        sums = sums + f2 * load_part(b + 2 * b_k + whole, left)
        store_part(c + whole, sums + f3 * load_part(b + 3 * b_k + whole, left), left)


@kernel
def _one_row(a, b, c, count):
    factor = splat(load_f32(a))
    for i in range(0, count, 16):
        left = count - i
        store_part(c + 4 * i, load_part(c + 4 * i, left) + factor * load_part(b + 4 * i, left), left)


def strips(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Product of few rows with a matrix, strip by strip of columns."""
    m, n, k = word(step, 4), word(step, 5), word(step, 6)
    a_row, a_k = word(step, 7), word(step, 8)
    first, last = flat_share(n, thread, threads), flat_share(n, thread + 1, threads)
    zero = splat(f32(0.0))
    for start in range(first, last, STRIP):
        count = min(STRIP, last - start)
        b = word(step, 1) + 4 * start
        for row in range(m):
            c = word(step, 3) + 4 * (row * n + start)
            for i in range(0, count, 16):
                value = zero
                if word(step, 2) != 0:
                    value = load_part(word(step, 2) + 4 * (start + i), count - i)
                store_part(c + 4 * i, value, count - i)
        whole = k // 4 * 4
        for k0 in range(0, whole, 4):
            for row in range(m):
                a = word(step, 0) + row * a_row + k0 * a_k
                _four_rows(a, a_k, b + 4 * n * k0, 4 * n, word(step, 3) + 4 * (row * n + start), count)
        for k0 in range(whole, k):
            for row in range(m):
                a = word(step, 0) + row * a_row + k0 * a_k
                _one_row(a, b + 4 * n * k0, word(step, 3) + 4 * (row * n + start), count)
        if word(step, 9) != 0:
            c = word(step, 3) + 4 * start
            call_finish(word(step, 9), scratch(control, thread), control, m, count, c, 4 * n, c, 4 * n)
