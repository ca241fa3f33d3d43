"""The matrix product of rows with rows: both sides contiguous along the summed axis, few rows on the left.

This is the forward pass of a dense layer for small batches: weights ``[N, K]`` are read once, in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.gemm import call_finish
from volumetric.devices.cpu.kernels.graph.gemm_microkernels import dot_tile
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.step_words import scratch, word

DEPTH = 2048
"""k per pass: a few rows of weights stay in a first-level cache while all rows on the left are multiplied by them."""

DOTS_ARGUMENTS = ("a", "b", "bias", "c", "m", "n", "k", "ga", "gb", "gc", "groups", "finish", "bias_group")

_A, _B, _BIAS, _C, _M, _N, _K, _GA, _GB, _GC, _GROUPS, _FINISH, _BIAS_GROUP = range(13)

f32 = np.float32


@kernel
def _tile(rows, columns, a, b, stride, count, c, c_row, fresh, room):
    """One tile of sums, added to c unless `fresh`."""
    dot_tile(rows, columns, a, stride, b, stride, count, room)
    for m in range(rows):
        out = c + m * c_row
        value = load_part(room + 4 * m * columns, columns)
        if fresh == 0:
            value = value + load_part(out, columns)
        store_part(out, value, columns)


@kernel
def _columns(rows, columns, m, a, b, stride, count, c, c_row, fresh, room):
    """All `m` rows on the left with `columns` on the right."""
    row = 0
    while m - row >= rows:
        _tile(rows, columns, a + row * stride, b, stride, count, c + row * c_row, c_row, fresh, room)
        row += rows
    while m > row:
        _tile(1, columns, a + row * stride, b, stride, count, c + row * c_row, c_row, fresh, room)
        row += 1


def dots(rows: int, columns: int) -> Callable[..., None]:
    """Product with tiles of `rows` × `columns` sums."""

    def dots(step: Any, thread: Any, threads: Any, control: Any) -> None:
        m, n, k = word(step, _M), word(step, _N), word(step, _K)
        gc = word(step, _GC)
        room = scratch(control, thread)
        units = (n + columns - 1) // columns
        for item in range(share(gc * units, thread, threads), share(gc * units, thread + 1, threads)):
            j, column = item // units, item % units * columns
            count = min(columns, n - column)
            c = word(step, _C) + 4 * (j * m * n + column)
            fresh = 1
            for group in range(j, word(step, _GROUPS), gc):
                a = word(step, _A) + 4 * (group % word(step, _GA) * m * k)
                b = word(step, _B) + 4 * (group % word(step, _GB) * n + column) * k
                for k0 in range(0, k, DEPTH):
                    depth = min(DEPTH, k - k0)
                    if count == columns:
                        _columns(rows, columns, m, a + 4 * k0, b + 4 * k0, 4 * k, depth, c, 4 * n, fresh, room)
                    else:
                        for i in range(count):
                            here = b + 4 * (i * k + k0)
                            _columns(rows, 1, m, a + 4 * k0, here, 4 * k, depth, c + 4 * i, 4 * n, fresh, room)
                    fresh = 0
            if word(step, _BIAS) != 0:
                bias = word(step, _BIAS) + j * word(step, _BIAS_GROUP) + 4 * column
                for row in range(m):
                    for i in range(count):
                        out = c + 4 * (row * n + i)
                        store_f32(out, load_f32(out) + load_f32(bias + 4 * i))
            if word(step, _FINISH) != 0:
                call_finish(word(step, _FINISH), room + 64, control, m, count, c, 4 * n, c, 4 * n)

    return dots
