"""Gather rows of a table by id, and sum rows back into a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.memory_access import load_i32
from volumetric.devices.cpu.kernels.simd import splat
from volumetric.devices.cpu.kernels.step_words import word

f32 = np.float32

GATHER_ARGUMENTS = ("table", "ids", "y", "count", "width", "rows")


def gather_rows(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy the rows with these ids. The caller has checked them; memory outside of the table is never read."""
    count, width = word(step, 3), word(step, 4)
    for i in range(share(count, thread, threads), share(count, thread + 1, threads)):
        row = max(0, min(np.int64(load_i32(word(step, 1) + 4 * i)), word(step, 5) - 1))
        source = word(step, 0) + 4 * width * row
        out = word(step, 2) + 4 * width * i
        for j in range(0, width, 16):
            store_part(out + 4 * j, load_part(source + 4 * j, width - j), width - j)


SCATTER_ARGUMENTS = ("g", "ids", "y", "count", "width", "rows", "fresh")
"""`fresh`: 1 if y starts as zeros, 0 if rows are added to its contents."""


def scatter_rows(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Each row of the result is the sum of the rows of its id, in the order of ids; a thread owns a range of rows."""
    count, width, rows = word(step, 3), word(step, 4), word(step, 5)
    first, last = share(rows, thread, threads), share(rows, thread + 1, threads)
    zero = splat(f32(0.0))
    size = (last - first) * width
    if word(step, 6) != 0:
        for i in range(0, size, 16):
            store_part(word(step, 2) + 4 * (first * width + i), zero, size - i)
    for i in range(count):
        row = load_i32(word(step, 1) + 4 * i)
        if first <= row < last:
            source = word(step, 0) + 4 * width * i
            out = word(step, 2) + 4 * width * row
            for j in range(0, width, 16):
                value = load_part(out + 4 * j, width - j) + load_part(source + 4 * j, width - j)
                store_part(out + 4 * j, value, width - j)
