"""Attention by content and distance for a few rows and a memory, read in place; threads divide the sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.maths import exp
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.simd import largest, load, peak, splat, store, total
from volumetric.devices.cpu.kernels.step_words import number, scratch, word

f32 = np.float32

DISTANCE_ATTEND_ARGUMENTS = (
    "content",
    "position",
    "k",
    "v",
    "r",
    "keys",
    "values",
    "age",
    "keep",  # address or 0
    "y",
    "new_keys",
    "new_values",
    "new_age",
    "batch",
    "length",
    "memory",
    "heads",
    "width",
    "scale",
)


def distance_scratch(memory: int) -> int:
    """Bytes of scratch: two numbers for each visible row."""
    return 2 * 4 * (memory + 32)


@kernel
def _row(past, new, memory, row_bytes, j):
    """Address of row `j` of the memory followed by the call's rows."""
    if j < memory:
        return past + j * row_bytes
    return new + (j - memory) * row_bytes


@kernel
def _nonfinite_marks(past, new, memory, inner, first, some, out):
    """For each visible row 0, or NaN if it holds a non-finite number."""
    zero = splat(f32(0.0))
    for s in range(some):
        row = _row(past, new, memory, 4 * inner, first + s)
        sums = zero
        for i in range(0, inner, 16):
            sums = sums + load_part(row + 4 * i, inner - i) * zero
        store_f32(out + 4 * s, total(sums))


@kernel
def _logits(query, placed, past, new, r, memory, inner, width, first, some, scale, odd, out):
    """``(query · key + placed · r) · scale + odd`` of each visible row."""
    zero = splat(f32(0.0))
    for s in range(some):
        row = _row(past, new, memory, 4 * inner, first + s)
        code = r + 4 * width * s
        sums = zero
        for i in range(0, width, 16):
            left = width - i
            sums = sums + load_part(query + 4 * i, left) * load_part(row + 4 * i, left)
            sums = sums + load_part(placed + 4 * i, left) * load_part(code + 4 * i, left)
        store_f32(out + 4 * s, total(sums) * scale + load_f32(odd + 4 * s))


@kernel
def _softmax(x, some):
    """Softmax of `some` numbers in place; the rest of the last vector becomes 0."""
    lowest = f32(-np.inf)
    for s in range(some, (some + 15) // 16 * 16):
        store_f32(x + 4 * s, lowest)
    top = splat(lowest)
    for s in range(0, some, 16):
        top = largest(load(x + 4 * s), top)
    most = peak(top)
    if most == lowest:  # all of them are, unless one is NaN, which then shows in its power
        most = f32(0.0)
    summed = splat(f32(0.0))
    for s in range(0, some, 16):
        power = exp(load(x + 4 * s) - splat(most))
        store(x + 4 * s, power)
        summed = summed + power
    whole = total(summed)
    factor = f32(0.0)
    if whole != f32(0.0):
        factor = f32(1.0) / whole
    for s in range(0, some, 16):
        store(x + 4 * s, load(x + 4 * s) * splat(factor))


@kernel
def _mix_values(weights, past, new, memory, inner, width, first, some, y):
    """``Σ weight · value`` of one head."""
    zero = splat(f32(0.0))
    for i in range(0, width, 16):
        left = width - i
        s0 = zero
        s1 = zero
        s2 = zero
        s3 = zero
        s = 0
        while some - s >= 4 and first + s + 4 <= memory:
            row = past + (first + s) * 4 * inner + 4 * i
            s0 = s0 + splat(load_f32(weights + 4 * s)) * load_part(row, left)
            s1 = s1 + splat(load_f32(weights + 4 * s + 4)) * load_part(row + 4 * inner, left)
            s2 = s2 + splat(load_f32(weights + 4 * s + 8)) * load_part(row + 8 * inner, left)
            s3 = s3 + splat(load_f32(weights + 4 * s + 12)) * load_part(row + 12 * inner, left)
            s += 4
        while s < some:
            row = _row(past, new, memory, 4 * inner, first + s) + 4 * i
            s0 = s0 + splat(load_f32(weights + 4 * s)) * load_part(row, left)
            s += 1
        store_part(y + 4 * i, (s0 + s1) + (s2 + s3), left)


@kernel
def _shift_memory(past, new, memory, inner, length, some, out):
    """Copy the last rows of memory and call, with zeros for rows of other sequences."""
    zero = splat(f32(0.0))
    for m in range(memory):
        row = _row(past, new, memory, 4 * inner, length + m)
        for i in range(0, inner, 16):
            left = inner - i
            value = zero
            if memory - m <= some:
                value = load_part(row + 4 * i, left)
            store_part(out + 4 * (m * inner + i), value, left)


def distance_attend(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Attention of all rows of all sequences, and the rows to keep afterwards."""
    length, memory, heads, width = word(step, 14), word(step, 15), word(step, 16), word(step, 17)
    inner, batch = heads * width, word(step, 13)
    scale = number(step, 18)
    odd = scratch(control, thread)
    weights = odd + 4 * (memory + 32)
    for b in range(share(batch, thread, threads), share(batch, thread + 1, threads)):
        here = 4 * b * length * inner
        past = 4 * b * memory * inner
        keys, k = word(step, 5) + past, word(step, 2) + here
        values, v = word(step, 6) + past, word(step, 3) + here
        count = load_f32(word(step, 7) + 4 * b)
        some = 0
        for t in range(length):
            if word(step, 8) != 0:
                if load_f32(word(step, 8) + 4 * (b * length + t)) == f32(0.0):
                    count = f32(0.0)
            count += f32(1.0)
            some = memory + 1
            if count < f32(memory + 1):
                some = int(count)
            first = memory + t + 1 - some
            row = here + 4 * t * inner
            _nonfinite_marks(values, v, memory, inner, first, some, odd)
            for h in range(heads):
                at = 4 * h * width
                r = word(step, 4) + 4 * width * (h * (memory + 1) + memory + 1 - some)
                query, placed = word(step, 0) + row + at, word(step, 1) + row + at
                _logits(query, placed, keys + at, k + at, r, memory, inner, width, first, some, scale, odd, weights)
                _softmax(weights, some)
                _mix_values(weights, values + at, v + at, memory, inner, width, first, some, word(step, 9) + row + at)
        _shift_memory(keys, k, memory, inner, length, some, word(step, 10) + past)
        _shift_memory(values, v, memory, inner, length, some, word(step, 11) + past)
        if count > f32(memory):
            count = f32(memory)
        store_f32(word(step, 12) + 4 * b, count)
