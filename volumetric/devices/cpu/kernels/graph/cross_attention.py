"""Cross attention of small parts of a table of rows, from rows to results within a second-level cache.

A part is computed entirely by one thread: projections, logits, weights and their sums stay in its scratch, so only its
rows, its weights and its results go through memory. Queries and the values they read are transposed, one number of all
queries after the other: lanes are queries, and a softmax needs no sums over lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.gemm import pack
from volumetric.devices.cpu.kernels.graph.gemm_microkernels import panel_rows
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part, transpose_block, where_equal
from volumetric.devices.cpu.kernels.maths import exp
from volumetric.devices.cpu.kernels.memory_access import load_i32
from volumetric.devices.cpu.kernels.simd import largest, load, splat, store
from volumetric.devices.cpu.kernels.step_words import number, scratch, word

f32 = np.float32

CROSS_ATTEND_ARGUMENTS = (
    *("table", "asks", "tells"),
    *("wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo"),  # wk and wv are tables of keys and values if precomputed
    "seen",  # address of [keys, queries], or 0
    "y",
    *("edges", "parts", "queries", "keys", "width", "heads", "scale", "known"),
)
_TABLE, _ASKS, _TELLS, _WEIGHTS, _BIASES, _SEEN, _Y = 0, 1, 2, 3, 7, 11, 12
_EDGES, _PARTS, _QUERIES, _KEYS, _WIDTH, _HEADS, _SCALE, _KNOWN = range(13, 21)


def cross_scratch(queries: int, keys: int, width: int, vectors: int) -> int:
    """Bytes of scratch: rows of both sides, queries, keys, values, all transposed queries twice, logits, a panel."""
    wide = 16 * vectors
    across = -(-queries // wide) * wide
    deep = -(-width // 16) * 16
    rows = 2 * (queries + keys) * width + keys * width
    return 4 * (rows + 2 * deep * across + keys * wide + (width + 3) * wide) + 512


@kernel
def _gather_rows(table, ids, count, width, room):
    """Address of rows: their own address if contiguous, else that of a copy."""
    first = np.int64(load_i32(ids))
    together = True
    for i in range(1, count):
        if np.int64(load_i32(ids + 4 * i)) != first + i:
            together = False
            break
    if together:
        return table + 4 * width * first
    for i in range(count):
        row = table + 4 * width * np.int64(load_i32(ids + 4 * i))
        for j in range(0, width, 16):
            store_part(room + 4 * (i * width + j), load_part(row + 4 * j, width - j), width - j)
    return room


@kernel
def _same_ids(a, b, count):
    """Whether two lists of numbers are equal."""
    for i in range(count):
        if load_i32(a + 4 * i) != load_i32(b + 4 * i):
            return False
    return True


@kernel
def _weigh(logits, keys, apart, columns, visible, visible_row, factors):
    """Replace logits ``[keys, columns]`` by ``e**(x - largest)``, lane by lane; `factors` get 1 / their sums."""
    lowest = splat(f32(-math.inf))
    zero = splat(f32(0.0))
    one = splat(f32(1.0))
    for j in range(0, columns, 16):
        at = logits + 4 * j
        if visible != 0:
            for m in range(keys):
                shown = load_part(visible + m * visible_row + 4 * j, columns - j)
                store(at + m * apart, where_equal(shown, zero, lowest, load(at + m * apart)))
        top = lowest
        for m in range(keys):
            top = largest(top, load(at + m * apart))
        top = where_equal(top, lowest, zero, top)
        sums = zero
        for m in range(keys):
            value = exp(load(at + m * apart) - top)
            store(at + m * apart, value)
            sums = sums + value
        store(factors + 4 * j, one / where_equal(sums, zero, one, sums))


@kernel
def _transpose_scaled(x, count, width, scale, out, apart):
    """Write ``out[j, i] = scale · x[i, j]``, rows `apart` bytes apart."""
    by = splat(scale)
    for i in range(0, count, 16):
        for j in range(0, width, 16):
            here = out + j * apart + 4 * i
            transpose_block(x + 4 * (i * width + j), 4 * width, min(count - i, 16), min(width - j, 16), here, apart)
            for k in range(16):
                store(here + k * apart, load(here + k * apart) * by)


def cross_attend(tall: int, wide: int) -> Callable[..., None]:
    """Attention of parts, with tiles of `tall` rows and `wide` vectors."""
    unit = 16 * wide

    def cross_attend(step: Any, thread: Any, threads: Any, control: Any) -> None:
        parts, queries, keys = word(step, _PARTS), word(step, _QUERIES), word(step, _KEYS)
        width, heads = word(step, _WIDTH), word(step, _HEADS)
        row = 4 * width
        each = width // heads
        across = 4 * ((queries + unit - 1) // unit * unit)  # bytes of a number of all queries
        deep = (width + 15) // 16 * 16
        zeros = scratch(control, thread)
        factors = zeros + 4 * unit
        turned = factors + 4 * unit
        read = turned + deep * across
        logits = read + deep * across
        panel = logits + 4 * keys * unit
        query_rows = panel + 4 * unit * (width + 1)
        key_rows = query_rows + queries * row
        projected = key_rows + keys * row  # queries, keys and values
        key_room = projected + queries * row
        value_room = key_room + keys * row
        k, v = key_room, value_room
        for i in range(0, unit, 16):
            store(zeros + 4 * i, splat(f32(0.0)))
        count = word(step, _EDGES) * parts
        key_source = key_rows
        start = share(count, thread, threads)
        for item in range(start, share(count, thread + 1, threads)):
            edge = item // parts
            asks = word(step, _ASKS) + 4 * item * queries
            tells = word(step, _TELLS) + 4 * item * keys
            # Queries of the previous part are still valid if it used the same rows and weights.
            queries_ready = item > start and item % parts != 0 and _same_ids(asks, asks - 4 * queries, queries)
            if word(step, _KNOWN) != 0:
                k = _gather_rows(word(step, _WEIGHTS + 1), tells, keys, width, key_room)
                v = _gather_rows(word(step, _WEIGHTS + 2), tells, keys, width, value_room)
            for phase in range(queries_ready, 4):
                if word(step, _KNOWN) != 0 and (phase == 1 or phase == 2):
                    continue
                x, rows, x_row, x_k, y = read, queries, 4, across, word(step, _Y) + item * queries * row
                if phase == 0:
                    x, x_row, x_k, y = (
                        _gather_rows(word(step, _TABLE), asks, queries, width, query_rows),
                        row,
                        4,
                        projected,
                    )
                elif phase == 1:
                    x, rows, x_row, x_k = _gather_rows(word(step, _TABLE), tells, keys, width, key_rows), keys, row, 4
                    key_source, y = x, k
                elif phase == 2:
                    x, rows, x_row, x_k, y = key_source, keys, row, 4, v
                else:
                    for head in range(heads):
                        own = 4 * head * each
                        for block in range(0, queries, unit):
                            columns = min(unit, queries - block)
                            lane = head * each * across + 4 * block
                            done = 0
                            while done < columns:
                                done += panel_rows(
                                    tall,
                                    wide,
                                    keys,
                                    k + own,
                                    row,
                                    4,
                                    turned + lane + 4 * done,
                                    across,
                                    each,
                                    zeros,
                                    0,
                                    logits + 4 * done,
                                    4 * unit,
                                    columns - done,
                                )
                            visible = word(step, _SEEN)
                            if visible != 0:
                                visible += 4 * block
                            _weigh(logits, keys, 4 * unit, columns, visible, 4 * queries, factors)
                            done = 0
                            while done < columns:
                                done += panel_rows(
                                    tall,
                                    wide,
                                    each,
                                    v + own,
                                    4,
                                    row,
                                    logits + 4 * done,
                                    4 * unit,
                                    keys,
                                    zeros,
                                    0,
                                    read + lane + 4 * done,
                                    across,
                                    columns - done,
                                )
                            for i in range(each):
                                for j in range(0, columns, 16):
                                    at = read + lane + i * across + 4 * j
                                    store(at, load(at) * load(factors + 4 * j))
                weight = word(step, _WEIGHTS + phase) + edge * width * row
                bias = word(step, _BIASES + phase) + edge * row
                for column in range(0, width, unit):
                    columns = min(unit, width - column)
                    right, apart = weight + 4 * column, row
                    if columns < 16 or columns & (columns - 1) != 0:  # vectors would be read beyond its end
                        pack(right, apart, 4, width, columns, panel, 4 * unit)
                        right, apart = panel, 4 * unit
                    done = 0
                    while done < columns:
                        done += panel_rows(
                            tall,
                            wide,
                            rows,
                            x,
                            x_row,
                            x_k,
                            right + 4 * done,
                            apart,
                            width,
                            bias + 4 * (column + done),
                            0,
                            y + 4 * (column + done),
                            row,
                            columns - done,
                        )
                if phase == 0:
                    _transpose_scaled(projected, queries, width, number(step, _SCALE), turned, across)

    return cross_attend
