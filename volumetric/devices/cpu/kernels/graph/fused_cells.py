"""One step of recurrent cells that are the nodes of a graph: alone, backward, and with the products before it.

Threads divide rows, or nodes. States are ``[state, rows, units]``, so the states of a unit are the size of all rows
apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.cells import backward, forward, keeps
from volumetric.devices.cpu.kernels.graph.gemm import pack
from volumetric.devices.cpu.kernels.graph.gemm_microkernels import panel_rows
from volumetric.devices.cpu.kernels.graph.norms import normalise_lanes, statistics
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.memory_access import load_i32
from volumetric.devices.cpu.kernels.simd import splat, store
from volumetric.devices.cpu.kernels.step_words import number, scratch, word

ROWS = 24
"""Streams of a node computed together."""
DEPTH = 512
"""k packed at a time for weights that cannot be read in place."""

f32 = np.float32

CELL_ARGUMENTS = ("from_x", "from_h", "bias", "before", "y", "others", "saved", "rows", "sets", "size")
"""`others` and `kept` may be 0: the cell has none, or nothing reads them."""


def cell(code: int, blocks: int) -> Callable[..., None]:
    """One step of cell number `code` for all rows."""
    own = keeps(code)

    def cell(step: Any, thread: Any, threads: Any, control: Any) -> None:
        rows, size = word(step, 7), word(step, 9)
        wide, whole = blocks * size, 4 * rows * size
        together = rows // word(step, 8)
        for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
            for unit in range(0, size, 16):
                at, state = 4 * (row * wide + unit), 4 * (row * size + unit)
                forward(
                    code,
                    word(step, 0) + at,
                    word(step, 2) + 4 * (row // together * wide + unit),
                    word(step, 1) + at,
                    4 * size,
                    0,
                    word(step, 3) + state,
                    word(step, 3) + state,
                    whole,
                    word(step, 4) + state,
                    0 if word(step, 6) == 0 else word(step, 6) + 4 * (row * own * size + unit),
                    word(step, 5) + state,
                    whole,
                    size,
                    size - unit,
                )

    return cell


CELL_GRAD_ARGUMENTS = (
    *("gy", "g_others", "y", "others", "saved", "before"),
    *("g_x", "g_h", "g_before", "rows", "size"),
)


def cell_grad(code: int, blocks: int) -> Callable[..., None]:
    """The backward pass of `cell`."""
    own = keeps(code)

    def cell_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
        rows, size = word(step, 9), word(step, 10)
        wide, whole = blocks * size, 4 * rows * size
        for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
            for unit in range(0, size, 16):
                at, state = 4 * (row * wide + unit), 4 * (row * size + unit)
                backward(
                    code,
                    load_part(word(step, 0) + state, size - unit),
                    0 if word(step, 1) == 0 else word(step, 1) + state,
                    whole,
                    word(step, 2) + state,
                    word(step, 4) + 4 * (row * own * size + unit),
                    word(step, 3) + state,
                    whole,
                    word(step, 5) + state,
                    word(step, 5) + state,
                    whole,
                    word(step, 6) + at,
                    word(step, 7) + at,
                    word(step, 8) + state,
                    size,
                    size - unit,
                )

    return cell_grad


NODES_ARGUMENTS = (
    *("m", "h", "from_m", "from_h", "bias", "before", "y", "others", "saved"),
    *("gain", "shown", "nodes", "batch", "deep", "size", "apart", "gains", "heads", "eps", "ids"),
)
"""`from_m` and `from_h`: matrices ``[deep, blocks · size]`` and ``[size, …]``; `apart`, `gains`: 1 if each node has its
own; `ids`: which of the matrices each node has, or 0. `shown`: where the norm of y goes, head by head and times `gain`;
both 0 if there is none."""


@kernel
def _head_norm(y, gain, shown, size, heads, eps, room):
    """Layer norm of each head of a row, times the gain."""
    width = size // heads
    for head in range(heads):
        first = 4 * head * width
        statistics(1, y + first, room, width, eps)
        for i in range(0, width, 16):
            at, left = first + 4 * i, width - i
            store_part(shown + at, normalise_lanes(y + at, left, room) * load_part(gain + at, left), left)


def cell_nodes(code: int, blocks: int, tall: int, wide: int) -> Callable[..., None]:
    """Products of messages and states with the weights of each node, its cell, and the norm of its output."""
    own = keeps(code)

    def cell_nodes(step: Any, thread: Any, threads: Any, control: Any) -> None:
        nodes, batch, size = word(step, 11), word(step, 12), word(step, 14)
        columns, whole = blocks * size, 4 * nodes * batch * size
        zeros = scratch(control, thread)
        packed = zeros + 64
        pre = packed + 64 * wide * (DEPTH + 16)
        store(zeros, splat(f32(0.0)))
        for node in range(share(nodes, thread, threads), share(nodes, thread + 1, threads)):
            own_set = node * word(step, 15)
            if word(step, 19) != 0:
                own_set = np.int64(load_i32(word(step, 19) + 4 * node))
            for first in range(0, batch, ROWS):
                rows, place = min(ROWS, batch - first), node * batch + first
                for column in range(0, columns, 16 * wide):
                    count = min(16 * wide, columns - column)
                    exact = count >= 16 and count & (count - 1) == 0
                    start, start_row = word(step, 4) + 4 * (node * columns + column), 0
                    out = pre + 4 * column
                    for of in range(2):
                        k = word(step, 13) if of == 0 else size
                        a = word(step, of) + 4 * place * k
                        b = word(step, 2 + of) + 4 * (own_set * k * columns + column)
                        for k0 in range(0, k, DEPTH):
                            deep = min(DEPTH, k - k0)
                            source, apart = b + 4 * k0 * columns, 4 * columns
                            if not exact:
                                pack(source, apart, 4, deep, count, packed, 64 * wide)
                                source, apart = packed, 64 * wide
                            done = 0
                            while done < count:
                                done += panel_rows(
                                    tall,
                                    wide,
                                    rows,
                                    a + 4 * k0,
                                    4 * k,
                                    4,
                                    source + 4 * done,
                                    apart,
                                    deep,
                                    start + 4 * done,
                                    start_row,
                                    out + 4 * done,
                                    4 * columns,
                                    count - done,
                                )
                            start, start_row = out, 4 * columns
                for n in range(rows):
                    row = place + n
                    for unit in range(0, size, 16):
                        state = 4 * (row * size + unit)
                        forward(
                            code,
                            pre + 4 * (n * columns + unit),
                            0,
                            zeros,
                            0,
                            0,
                            word(step, 5) + state,
                            word(step, 5) + state,
                            whole,
                            word(step, 6) + state,
                            0 if word(step, 8) == 0 else word(step, 8) + 4 * (row * own * size + unit),
                            word(step, 7) + state,
                            whole,
                            size,
                            size - unit,
                        )
                gain = word(step, 9) + 4 * node * word(step, 16) * size
                for n in range(rows if word(step, 9) != 0 else 0):
                    here = 4 * (place + n) * size
                    y, shown = word(step, 6) + here, word(step, 10) + here
                    _head_norm(y, gain, shown, size, word(step, 17), number(step, 18), packed)

    return cell_nodes


def nodes_scratch(columns: int, wide: int) -> int:
    """Bytes of scratch that `cell_nodes` needs for as many pre-activations of a node."""
    return 64 + 64 * wide * (DEPTH + 16) + 4 * ROWS * (columns + 16 * wide)
