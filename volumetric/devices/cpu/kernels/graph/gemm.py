"""The grouped matrix product ``c[j] = act(Σ_{g ≡ j mod Gc} op(a[g mod Ga]) op(b[g mod Gb]) + bias)``, by panels.

A panel is a few vectors of neighbouring columns of the right side. It is packed, `DEPTH` k at a time, and multiplied
with all rows of the left side, which is read in place. Each output element is one sum in order of k, whichever thread
computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.gemm_microkernels import panel_rows
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.graph.unary import apply
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part, transpose_block
from volumetric.devices.cpu.kernels.memory_access import call_operation, load_f32, load_i64, store_i64
from volumetric.devices.cpu.kernels.simd import splat, store
from volumetric.devices.cpu.kernels.step_words import scratch, slot_address, word

DEPTH = 768
"""k packed at a time: 4 vectors of each are 192 KiB, which stay in a second-level cache."""
_LOOSE_ROWS = 12
"""Rows of the left side up to which packing a panel costs more than it saves."""
_GATHERED_ROWS = 48
"""Rows of a transposed left side packed together: three cache lines of each k, of which all numbers are read."""
_FAR = 256
"""Bytes between one k and the next of a left side from which that pays."""
_FINISHED_ROWS = 48
"""Rows finished together: they wait in scratch, because reading back just-written memory is slow if its cache lines
were fetched from far away."""

f32 = np.float32

GEMM_ARGUMENTS = (
    "a",
    "b",
    "bias",  # address or 0
    "c",
    "m",
    "n",
    "k",
    "ga",
    "gb",
    "gc",
    "groups",  # the largest of the three
    "finish",  # address of a compiled `finish`, or 0
    "a_group",  # bytes from one to the next, here and below
    "a_row",
    "a_k",
    "b_group",
    "b_k",
    "b_column",
    "bias_group",
    "many",  # address of `TERM` words for each `gc` groups, or 0: they are contiguous
)

TERM = 4
"""Words for `gc` groups: slots of a and b, then slot and column of a number that is 0 if these groups are skipped, and
need not exist; -1 for none."""

(
    _A,
    _B,
    _BIAS,
    _C,
    _M,
    _N,
    _K,
    _GA,
    _GB,
    _GC,
    _GROUPS,
    _FINISH,
    _A_GROUP,
    _A_ROW,
    _A_K,
    _B_GROUP,
    _B_K,
    _B_COLUMN,
    _BIAS_GROUP,
    _MANY,
) = range(len(GEMM_ARGUMENTS))


def gemm_scratch(vectors: int) -> int:
    """Bytes of scratch that `gemm` needs: a call of `finish`, zeros to start from, a panel, and rows to finish."""
    return 128 + 64 * vectors * (1 + DEPTH + 16 + _FINISHED_ROWS) + 4 * _GATHERED_ROWS * DEPTH


@kernel
def pack(b, b_k, b_column, count, columns, out, apart):
    """Pack `count` × `columns` numbers, k by k, `apart` bytes from one k to the next."""
    if b_column == 4:
        for k in range(count):
            source = b + k * b_k
            target = out + k * apart
            for j in range(0, columns, 16):
                store(target + 4 * j, load_part(source + 4 * j, columns - j))
    else:
        for j in range(0, columns, 16):
            rows = min(columns - j, 16)
            for k in range(0, count, 16):
                here = b + j * b_column + 4 * k
                transpose_block(here, b_column, rows, min(count - k, 16), out + k * apart + 4 * j, apart)


FINISH_ARGUMENTS = ("rows", "columns", "x", "x_row", "c", "c_row")


def finish(code: int) -> Callable[..., None]:
    """Apply function number `code` to a block x, giving c; products call it on freshly computed blocks."""

    def finish(step: Any, thread: Any, threads: Any, control: Any) -> None:
        zero = splat(f32(0.0))
        for row in range(word(step, 0)):
            for j in range(0, word(step, 1), 16):
                left = word(step, 1) - j
                x = load_part(word(step, 2) + row * word(step, 3) + 4 * j, left)
                store_part(word(step, 4) + row * word(step, 5) + 4 * j, apply(code, x, zero, zero), left)

    return finish


@kernel
def call_finish(address, room, control, rows, columns, x, x_row, c, c_row):
    """Call the compiled `finish` at `address`; `room` has 128 bytes for a step."""
    store_i64(room + 24, rows)
    store_i64(room + 32, columns)
    store_i64(room + 40, x)
    store_i64(room + 48, x_row)
    store_i64(room + 56, c)
    store_i64(room + 64, c_row)
    call_operation(address, room, 0, 1, control)


@kernel
def _chunks(items, rows, threads):
    """Number of parts into which the rows are split, so that there are enough items for all threads."""
    if threads == 1 or items >= 4 * threads:
        return 1
    return max(1, min((4 * threads + items - 1) // items, (rows + 23) // 24))


def gemm(tall: int, wide: int) -> Callable[..., None]:
    """Product with tiles of `tall` rows and `wide` vectors."""

    def gemm(step: Any, thread: Any, threads: Any, control: Any) -> None:
        m, n, k = word(step, _M), word(step, _N), word(step, _K)
        gc, a_row, a_k = word(step, _GC), word(step, _A_ROW), word(step, _A_K)
        panels = (n + 16 * wide - 1) // (16 * wide)
        chunks = _chunks(panels * gc, m, threads)
        chunk = ((m + chunks - 1) // chunks + tall - 1) // tall * tall
        if word(step, _FINISH) != 0:
            chunk = min(chunk, _FINISHED_ROWS // tall * tall)
        chunks = (m + chunk - 1) // chunk
        call = scratch(control, thread)
        zeros = call + 128
        packed = zeros + 64 * wide
        waiting = packed + 64 * wide * (DEPTH + 16)
        gathered = waiting + 64 * wide * _FINISHED_ROWS
        for i in range(0, 16 * wide, 16):
            store(zeros + 4 * i, splat(f32(0.0)))
        ready = -1
        for item in range(
            share(gc * panels * chunks, thread, threads), share(gc * panels * chunks, thread + 1, threads)
        ):
            # A right side shared by all groups is packed once: then the panel is the outermost loop.
            if word(step, _GB) == 1:
                panel, j = item // (gc * chunks), item // chunks % gc
            else:
                panel, j = item // chunks % panels, item // (chunks * panels)
            first = item % chunks * chunk
            rows = min(chunk, m - first)
            column = panel * 16 * wide
            columns = min(16 * wide, n - column)
            c = word(step, _C) + 4 * ((j * m + first) * n + column)
            out, out_row = c, 4 * n
            if word(step, _FINISH) != 0:
                out, out_row = waiting, 64 * wide
            start, start_row = zeros, 0
            if word(step, _BIAS) != 0:
                start = word(step, _BIAS) + j * word(step, _BIAS_GROUP) + 4 * column
            for group in range(j, word(step, _GROUPS), gc):
                a = word(step, _A) + group % word(step, _GA) * word(step, _A_GROUP)
                b = word(step, _B) + group % word(step, _GB) * word(step, _B_GROUP)
                if word(step, _MANY) != 0:
                    slots = word(step, _MANY) + 8 * TERM * (group // gc)
                    counts = load_i64(slots + 16)
                    if counts >= 0 and load_f32(slot_address(control, counts) + 4 * load_i64(slots + 24)) == 0:
                        continue
                    a = slot_address(control, load_i64(slots)) + j * word(step, _A_GROUP)
                    b = slot_address(control, load_i64(slots + 8)) + j * word(step, _B_GROUP)
                a += first * word(step, _A_ROW)
                b += column * word(step, _B_COLUMN)
                for k0 in range(0, k, DEPTH):
                    count = min(DEPTH, k - k0)
                    source = b + k0 * word(step, _B_K)
                    apart = word(step, _B_K)
                    # Three vectors are read as four, and partial vectors as whole ones: that must stay within the
                    # panel.
                    exact = columns >= 16 and columns & (columns - 1) == 0
                    together = m <= _LOOSE_ROWS or apart == 64 * wide
                    if word(step, _B_COLUMN) != 4 or not together or not exact:
                        if source != ready:
                            pack(source, apart, word(step, _B_COLUMN), count, columns, packed, 64 * wide)
                        ready = source
                        source, apart = packed, 64 * wide
                    here = a + k0 * word(step, _A_K)
                    some, row_bytes, k_bytes, top = rows, a_row, a_k, 0
                    turned = a_row == 4 and a_k >= _FAR and rows >= _LOOSE_ROWS
                    while top < rows:
                        if turned:
                            some = min(_GATHERED_ROWS, rows - top)
                            here, k_bytes = gathered, 4 * _GATHERED_ROWS
                            pack(a + k0 * a_k + 4 * top, a_k, 4, count, some, gathered, k_bytes)
                        done = 0
                        while done < columns:
                            left = columns - done
                            from_, to = start + top * start_row + 4 * done, out + top * out_row + 4 * done
                            right = source + 4 * done
                            done += panel_rows(
                                tall,
                                wide,
                                some,
                                here,
                                row_bytes,
                                k_bytes,
                                right,
                                apart,
                                count,
                                from_,
                                start_row,
                                to,
                                out_row,
                                left,
                            )
                        top += some
                    start, start_row = out, out_row
            if start != out:  # there was nothing to sum
                for row in range(rows):
                    for i in range(0, columns, 16):
                        store_part(out + row * out_row + 4 * i, load_part(start + 4 * i, columns - i), columns - i)
            if word(step, _FINISH) != 0:
                call_finish(word(step, _FINISH), call, control, rows, columns, out, out_row, c, 4 * n)

    return gemm
