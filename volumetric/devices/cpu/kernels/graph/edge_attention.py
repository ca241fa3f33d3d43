"""Attention over the edges of a graph. Threads divide receivers, or senders; sums go in the order of edges.

Weights are ``[edges, batch, heads]``: those of a receiver are contiguous, and lanes are streams and heads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.gemm_microkernels import dot_tile
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, load_part_or, store_part, where_equal
from volumetric.devices.cpu.kernels.maths import exp
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i32, store_f32
from volumetric.devices.cpu.kernels.simd import largest, splat, total
from volumetric.devices.cpu.kernels.step_words import number, scratch, word

f32 = np.float32

ATTEND_ARGUMENTS = (
    *("q", "kv", "bias", "starts", "senders", "message", "weights"),
    *("receivers", "batch", "heads", "key", "value", "queries", "biases", "scale"),
)
"""Addresses; widths of a head's key and value; streams of queries, and heads of biases; 1 / √key."""
BACK_ARGUMENTS = (
    *("g", "weights", "q", "kv", "starts", "senders", "slope", "g_q"),
    *("receivers", "batch", "heads", "key", "value", "queries", "scale"),
)
SPREAD_ARGUMENTS = (
    *("g", "weights", "slope", "q", "readers", "out_starts", "out_edges", "g_kv"),
    *("senders", "batch", "heads", "key", "value", "queries", "scale"),
)


@kernel
def _dot(a, b, width):
    sums = splat(f32(0.0))
    for i in range(0, width, 16):
        sums = sums + load_part(a + 4 * i, width - i) * load_part(b + 4 * i, width - i)
    return total(sums)


@kernel
def _softmax(weights, first, last, width):
    """Softmax over rows `first` to `last` of ``[edges, width]``, lane by lane."""
    lowest = splat(f32(-math.inf))
    zero = splat(f32(0.0))
    for i in range(0, width, 16):
        left = width - i
        top = lowest
        for edge in range(first, last):
            top = largest(top, load_part_or(weights + 4 * (edge * width + i), left, lowest))
        top = where_equal(top, lowest, zero, top)
        sums = zero
        for edge in range(first, last):
            at = weights + 4 * (edge * width + i)
            value = exp(load_part(at, left) - top)
            store_part(at, value, left)
            sums = sums + value
        factor = splat(f32(1.0)) / where_equal(sums, zero, splat(f32(1.0)), sums)
        for edge in range(first, last):
            at = weights + 4 * (edge * width + i)
            store_part(at, load_part(at, left) * factor, left)


@kernel
def _weighted_sum(out, width, weights, each, rows, apart, ids, first, last):
    """``out = Σ weights[edge] · rows[ids[edge]]``, for edges in their order."""
    zero = splat(f32(0.0))
    for i in range(0, width, 32):
        left = width - i
        low = zero
        high = zero
        for edge in range(first, last):
            row = rows + apart * np.int64(load_i32(ids + 4 * edge)) + 4 * i
            weight = splat(load_f32(weights + each * edge))
            low = low + weight * load_part(row, left)
            if left > 16:
                high = high + weight * load_part(row + 64, left - 16)
        store_part(out + 4 * i, low, left)
        if left > 16:
            store_part(out + 4 * i + 64, high, left - 16)


@kernel
def _scores(streams, rows, row, ask, width, room, bias, scale, scores, apart):
    """Scores of `streams` (compile-time) streams, whose keys are `row` bytes apart, and the scores `apart` bytes."""
    dot_tile(streams, 1, rows, row, ask, 0, width, room)
    for n in range(streams):
        store_f32(scores + n * apart, load_f32(room + 4 * n) * scale + bias)


def edge_attend(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Scores, softmax and messages of each receiver."""
    batch, heads, key, value = word(step, 8), word(step, 9), word(step, 10), word(step, 11)
    queries, biases, scale = word(step, 12), word(step, 13), number(step, 14)
    weights, senders, room = word(step, 6), word(step, 4), scratch(control, thread)
    width, wide = batch * heads, heads * (key + value)
    for r in range(share(word(step, 7), thread, threads), share(word(step, 7), thread + 1, threads)):
        first = np.int64(load_i32(word(step, 3) + 4 * r))
        last = np.int64(load_i32(word(step, 3) + 4 * r + 4))
        for edge in range(first, last):
            row = word(step, 1) + 4 * wide * batch * np.int64(load_i32(senders + 4 * edge))
            for head in range(heads):
                bias = load_f32(word(step, 2) + 4 * (edge * biases + head % biases))
                keys, scores = row + 4 * head * key, weights + 4 * (edge * width + head)
                b = 0
                if queries == 1:
                    own = word(step, 0) + 4 * key * (heads * r + head)
                    while batch - b >= 8:
                        here, to = keys + 4 * b * wide, scores + 4 * b * heads
                        _scores(8, here, 4 * wide, own, key, room, bias, scale, to, 4 * heads)
                        b += 8
                while b < batch:
                    own = word(step, 0) + 4 * key * (heads * (r * queries + b % queries) + head)
                    here, to = keys + 4 * b * wide, scores + 4 * b * heads
                    _scores(1, here, 4 * wide, own, key, room, bias, scale, to, 4 * heads)
                    b += 1
        _softmax(weights, first, last, width)
        for b in range(batch):
            for head in range(heads):
                lane = b * heads + head
                values = word(step, 1) + 4 * (b * wide + heads * key + head * value)
                out = word(step, 5) + 4 * value * (r * width + lane)
                _weighted_sum(out, value, weights + 4 * lane, 4 * width, values, 4 * wide * batch, senders, first, last)


def edge_attend_back(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Gradients of scores and queries of each receiver."""
    batch, heads, key, value = word(step, 9), word(step, 10), word(step, 11), word(step, 12)
    queries, scale = word(step, 13), number(step, 14)
    weights, senders, slope = word(step, 1), word(step, 5), word(step, 6)
    width, wide = batch * heads, heads * (key + value)
    zero = splat(f32(0.0))
    for r in range(share(word(step, 8), thread, threads), share(word(step, 8), thread + 1, threads)):
        first = np.int64(load_i32(word(step, 4) + 4 * r))
        last = np.int64(load_i32(word(step, 4) + 4 * r + 4))
        for edge in range(first, last):
            row = word(step, 3) + 4 * wide * batch * np.int64(load_i32(senders + 4 * edge)) + 4 * heads * key
            for b in range(batch):
                for head in range(heads):
                    lane = b * heads + head
                    g = word(step, 0) + 4 * value * (r * width + lane)
                    store_f32(slope + 4 * (edge * width + lane), _dot(g, row + 4 * (b * wide + head * value), value))
        for i in range(0, width, 16):
            left = width - i
            mean = zero
            for edge in range(first, last):
                at = 4 * (edge * width + i)
                mean = mean + load_part(weights + at, left) * load_part(slope + at, left)
            for edge in range(first, last):
                at = 4 * (edge * width + i)
                changed = load_part(weights + at, left) * (load_part(slope + at, left) - mean)
                store_part(slope + at, changed, left)
        together = batch // queries  # streams that have one query
        for own in range(queries):
            for head in range(heads):
                out = word(step, 7) + 4 * key * ((r * queries + own) * heads + head)
                for i in range(0, key, 16):
                    sums = zero
                    for n in range(together):
                        b = own + n
                        for edge in range(first, last):
                            row = word(step, 3) + 4 * wide * (batch * np.int64(load_i32(senders + 4 * edge)) + b)
                            by = load_f32(slope + 4 * (edge * width + b * heads + head))
                            sums = sums + splat(by) * load_part(row + 4 * (head * key + i), key - i)
                    store_part(out + 4 * i, sums * splat(scale), key - i)


def edge_attend_spread(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Gradients of the keys and values of each sender."""
    batch, heads, key, value = word(step, 9), word(step, 10), word(step, 11), word(step, 12)
    queries, scale = word(step, 13), number(step, 14)
    width, wide = batch * heads, heads * (key + value)
    readers, out_edges = word(step, 4), word(step, 6)
    for s in range(share(word(step, 8), thread, threads), share(word(step, 8), thread + 1, threads)):
        first = np.int64(load_i32(word(step, 5) + 4 * s))
        last = np.int64(load_i32(word(step, 5) + 4 * s + 4))
        for b in range(batch):
            for head in range(heads):
                lane = b * heads + head
                out = word(step, 7) + 4 * wide * (s * batch + b)
                for i in range(0, key, 16):
                    sums = splat(f32(0.0))
                    for n in range(first, last):
                        edge = np.int64(load_i32(out_edges + 4 * n))
                        r = np.int64(load_i32(readers + 4 * edge))
                        q = word(step, 3) + 4 * key * ((r * queries + b % queries) * heads + head)
                        by = load_f32(word(step, 2) + 4 * (edge * width + lane))
                        sums = sums + splat(by) * load_part(q + 4 * i, key - i)
                    store_part(out + 4 * (head * key + i), sums * splat(scale), key - i)
                for i in range(0, value, 16):
                    sums = splat(f32(0.0))
                    for n in range(first, last):
                        edge = np.int64(load_i32(out_edges + 4 * n))
                        r = np.int64(load_i32(readers + 4 * edge))
                        g = word(step, 0) + 4 * value * (r * width + lane)
                        by = load_f32(word(step, 1) + 4 * (edge * width + lane))
                        sums = sums + splat(by) * load_part(g + 4 * i, value - i)
                    store_part(out + 4 * (heads * key + head * value + i), sums, value - i)
