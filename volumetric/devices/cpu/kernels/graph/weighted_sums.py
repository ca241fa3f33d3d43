"""Weighted sums of few rows each, of two tables; threads divide the results."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i32
from volumetric.devices.cpu.kernels.simd import splat
from volumetric.devices.cpu.kernels.step_words import word

f32 = np.float32

WEIGH_ARGUMENTS = ("near", "far", "ids", "weights", "y", "count", "terms", "width", "split", "rows")
"""Addresses; number of results, and rows of each; numbers of a row; rows of the first table, and of both."""


@kernel
def _row(step, i):
    """Address of the row of a term; memory outside of the tables is never read."""
    at = max(0, min(np.int64(load_i32(word(step, 2) + 4 * i)), word(step, 9) - 1))
    split = word(step, 8)
    if at < split:
        return word(step, 0) + 4 * word(step, 7) * at
    return word(step, 1) + 4 * word(step, 7) * (at - split)


def weigh_rows(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sum the terms in their order; those of weight 0 are not read."""
    count, terms, width = word(step, 5), word(step, 6), word(step, 7)
    zero = splat(f32(0.0))
    for i in range(share(count, thread, threads), share(count, thread + 1, threads)):
        out = word(step, 4) + 4 * width * i
        none = True
        for k in range(i * terms, (i + 1) * terms):
            by = load_f32(word(step, 3) + 4 * k)
            if by != f32(0.0):
                row = _row(step, k)
                for j in range(0, width, 16):
                    value = load_part(row + 4 * j, width - j) * splat(by)
                    if not none:
                        value = load_part(out + 4 * j, width - j) + value
                    store_part(out + 4 * j, value, width - j)
                none = False
        if none:
            for j in range(0, width, 16):
                store_part(out + 4 * j, zero, width - j)
