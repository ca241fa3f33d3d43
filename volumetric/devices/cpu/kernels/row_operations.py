"""Row-wise steps: look-ups, norms and joins.

Rows are divided among the threads in order. Values may be overwritten in whole vectors up to their row stride.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i32, load_i64, store_f32
from volumetric.devices.cpu.kernels.prepare import normalise
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import (
    WANTED_WORD,
    last_row,
    number,
    row_position,
    slot_address,
    slot_stride,
    word,
)
from volumetric.devices.cpu.kernels.unpack import read_row

f32 = np.float32


@kernel
def _share_start(step, thread, threads, control):
    return last_row(step, control) * thread // threads


@kernel
def _row(control, slot, row):
    return slot_address(control, slot) + row * slot_stride(control, slot)


EMBEDDING_ARGUMENTS = ("input", "output", "weights", "panel_stride", "k", "scale")


def embedding(code: int) -> Callable[..., None]:
    """Row `id` of the table, of format number `code`, read from its panel; the caller has checked the ids."""

    def embedding(step: Any, thread: Any, threads: Any, control: Any) -> None:
        start = _share_start(step, thread, threads, control)
        for row in range(start, _share_start(step, thread + 1, threads, control)):
            index = load_i32(_row(control, word(step, 0), row))
            panel = word(step, 2) + index // 16 * word(step, 3)
            out = _row(control, word(step, 1), row)
            read_row(code, panel, index % 16, word(step, 4), number(step, 5), out)

    return embedding


POSITION_ARGUMENTS = ("input", "output", "weights", "panel_stride", "k", "offset")


def position_embedding(code: int) -> Callable[..., None]:
    """``x + W[position + offset]``; `code` as of `embedding`."""

    def position_embedding(step: Any, thread: Any, threads: Any, control: Any) -> None:
        k = word(step, 4)
        start = _share_start(step, thread, threads, control)
        for row in range(start, _share_start(step, thread + 1, threads, control)):
            index = row_position(step, control, row) + word(step, 5)
            panel = word(step, 2) + index // 16 * word(step, 3)
            x = _row(control, word(step, 0), row)
            out = _row(control, word(step, 1), row)
            read_row(code, panel, index % 16, k, f32(1.0), out)
            for i in range(k):
                store_f32(out + 4 * i, load_f32(out + 4 * i) + load_f32(x + 4 * i))

    return position_embedding


NORM_ARGUMENTS = ("input", "output", "width", "norm", "eps", "weight", "bias")


def norm(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """RMS or layer norm of each row."""
    width = word(step, 2)
    for row in range(_share_start(step, thread, threads, control), _share_start(step, thread + 1, threads, control)):
        x = _row(control, word(step, 0), row)
        out = _row(control, word(step, 1), row)
        normalise(x, out, width, width, word(step, 3), number(step, 4), word(step, 5), word(step, 6))


JOIN_ARGUMENTS = ("inputs", "count", "output", "width", "scale")
"""`inputs` is the address of `count` pairs (slot, width)."""


def add(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sum of the inputs in order, times `scale`."""
    inputs = word(step, 0)
    for row in range(_share_start(step, thread, threads, control), _share_start(step, thread + 1, threads, control)):
        out = _row(control, word(step, 2), row)
        for i in range(0, word(step, 3), 16):
            value = load(_row(control, load_i64(inputs), row) + 4 * i)
            for j in range(1, word(step, 1)):
                value = value + load(_row(control, load_i64(inputs + 16 * j), row) + 4 * i)
            store(out + 4 * i, value * splat(number(step, 4)))


def concat(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """The inputs side by side."""
    inputs = word(step, 0)
    for row in range(_share_start(step, thread, threads, control), _share_start(step, thread + 1, threads, control)):
        out = _row(control, word(step, 2), row)
        for j in range(word(step, 1)):
            x = _row(control, load_i64(inputs + 16 * j), row)
            width = load_i64(inputs + 16 * j + 8)
            for i in range(width):
                store_f32(out + 4 * i, load_f32(x + 4 * i))
            out += 4 * width


GATHER_ARGUMENTS = ("slot", "width")


def gather(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Move the requested rows to the front, in order; threads divide the columns."""
    slot = word(step, 0)
    vectors = (word(step, 1) + 15) // 16
    count = last_row(step, control)
    if count < load_i64(control):
        for row in range(count):
            source = _row(control, slot, load_i64(load_i64(control + 8 * WANTED_WORD) + 8 * row))
            out = _row(control, slot, row)
            for i in range(vectors * thread // threads, vectors * (thread + 1) // threads):
                store(out + 64 * i, load(source + 64 * i))
