"""Sampling of a token for each row of logits, in the order bias, penalties, temperature, top-k, top-p, min-p."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import KernelLibrary, kernel
from volumetric.devices.cpu.kernels.memory_access import (
    atomic_add,
    load_f32,
    load_f64,
    load_i32,
    load_i64,
    store_f32,
    store_f64,
    store_i32,
    store_i64,
)
from volumetric.devices.cpu.kernels.sampling.choose import choose
from volumetric.devices.cpu.kernels.sampling.doubles import load_first, minus, over, plus, times
from volumetric.devices.cpu.kernels.sampling.row_scratch import (
    ADJUSTED,
    AT_BIAS,
    AT_BIAS_VALUES,
    AT_BIASES,
    AT_FREQUENCY,
    AT_GENERATED,
    AT_HISTORIES,
    AT_HISTORY,
    AT_LOGITS,
    AT_LOGPROBS,
    AT_NORM,
    AT_PRESENCE,
    AT_RECENT,
    AT_REPETITION,
    AT_SIZE,
    AT_STATE,
    AT_TEMPERATURE,
    AT_TOKEN,
    AT_TOP_IDS,
    AT_TOP_VALUES,
    INFINITE,
    NAN,
    NONE_POSSIBLE,
    USABLE,
    divide_scratch,
)
from volumetric.devices.cpu.kernels.sampling.select import GROUP, collect_at_least, keep_largest, sort_largest
from volumetric.devices.cpu.kernels.sampling.weights import rough_sum
from volumetric.devices.cpu.kernels.simd import largest, load, peak, splat, store, total, where_nan

f32 = np.float32
_LOWEST = -np.inf
_LN2 = math.log(2.0)


@kernel
def _read(source, size, desk):
    """Copy a row, padded with -inf, and the largest of each lane of its groups.

    Returns
    -------
    top, state : the largest number, and its validity
    """
    tops, odd = splat(f32(_LOWEST)), splat(f32(0.0))
    for first in range(0, desk.width, GROUP):
        group = splat(f32(_LOWEST))
        for i in range(first, first + GROUP, 16):
            value = load(source + 4 * i) if i + 16 <= size else load_first(source + 4 * i, size - i, f32(_LOWEST))
            store(desk.row + 4 * i, value)
            group = largest(value, group)
            odd = where_nan(value, value, odd)
        store(desk.peaks + first // GROUP * 64, group)
        tops = largest(group, tops)
    top, nan = peak(tops), total(odd)
    if nan != nan:
        return top, NAN
    if top == np.inf:
        return top, INFINITE
    if top == _LOWEST:
        return top, NONE_POSSIBLE
    return top, USABLE


@kernel
def _adjust(request, row, size):
    """Apply bias and penalties, each operation rounded to float32."""
    ids, values = load_i64(request + AT_BIAS), load_i64(request + AT_BIAS_VALUES)
    for i in range(load_i64(request + AT_BIASES)):
        place = row + 4 * load_i32(ids + 4 * i)
        store_f32(place, plus(load_f32(place), load_f32(values + 4 * i)))
    ids, recent = load_i64(request + AT_HISTORY), load_i64(request + AT_RECENT)
    generated = load_i64(request + AT_GENERATED)
    repetition = f32(load_f64(request + AT_REPETITION))
    presence, frequency = f32(load_f64(request + AT_PRESENCE)), f32(load_f64(request + AT_FREQUENCY))
    for i in range(load_i64(request + AT_HISTORIES)):
        token = load_i32(ids + 4 * i)
        if token >= size:  # a token that can be read, but not generated
            continue
        score = load_f32(row + 4 * token)
        if load_i32(recent + 4 * i) > 0:
            score = over(score, repetition) if score > 0 else times(score, repetition)
        count = load_i32(generated + 4 * i)
        if count > 0:
            score = minus(score, plus(times(f32(count), frequency), presence))
        store_f32(row + 4 * token, score)


@kernel
def _write_logprobs(request, size, top, desk):
    """Write the logarithm of the sum of exponentials, and the most likely tokens."""
    store_f64(request + AT_NORM, top + math.log(rough_sum(desk.row, desk.width, top, _LN2, 1.0)))
    count = min(load_i64(request + AT_LOGPROBS), size)
    if count == size:
        collect_at_least(desk.row, desk.width, desk.peaks, f32(_LOWEST), desk.scores, desk.numbers)
    elif count > 0:
        keep_largest(desk.row, desk.width, desk.peaks, count, desk.keys, desk.scores, desk.numbers, desk.spare)
    sort_largest(desk.scores, desk.numbers, count)
    ids, values = load_i64(request + AT_TOP_IDS), load_i64(request + AT_TOP_VALUES)
    for i in range(count):
        store_i32(ids + 4 * i, load_i32(desk.numbers + 4 * i))
        store_f32(values + 4 * i, load_f32(desk.scores + 4 * i))


@kernel
def _first_of(top, desk):
    """The index of the first score equal to `top`."""
    for first in range(0, desk.width, GROUP):
        if peak(load(desk.peaks + first // GROUP * 64)) == top:
            for i in range(first, first + GROUP):
                if load_f32(desk.row + 4 * i) == top:
                    return i
    return 0


@kernel
def _draw(request, scratch):
    """Process one request."""
    size = load_i64(request + AT_SIZE)
    desk = divide_scratch(size, scratch)
    top, state = _read(load_i64(request + AT_LOGITS), size, desk)
    if state == USABLE and load_i64(request + AT_LOGPROBS) >= 0:
        _write_logprobs(request, size, top, desk)
    if state == USABLE and load_i64(request + AT_BIASES) + load_i64(request + AT_HISTORIES) > 0:
        _adjust(request, desk.row, size)
        top, state = _read(desk.row, desk.width, desk)
        if state != USABLE:
            state += ADJUSTED
    store_i64(request + AT_STATE, state)
    if state != USABLE:
        return
    if load_f64(request + AT_TEMPERATURE) > 0.0:
        store_i64(request + AT_TOKEN, choose(request, size, top, desk))
    else:
        store_i64(request + AT_TOKEN, _first_of(top, desk))


REQUESTS_WORD, COUNT_WORD, NEXT_WORD, SCRATCH_WORD, SCRATCH_BYTES_WORD = range(5)
"""Control block of `draw_rows`: the address of the array of request addresses, the first of them that no thread has
taken yet, and the scratch of all threads, `scratch_bytes` of the largest size for each."""


def draw_rows(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Process requests, each by a free thread; an operation of the plan executor."""
    count = load_i64(control + 8 * COUNT_WORD)
    scratch = load_i64(control + 8 * SCRATCH_WORD) + thread * load_i64(control + 8 * SCRATCH_BYTES_WORD)
    i = atomic_add(control + 8 * NEXT_WORD, 1)
    while i < count:
        _draw(load_i64(load_i64(control + 8 * REQUESTS_WORD) + 8 * i), scratch)
        i = atomic_add(control + 8 * NEXT_WORD, 1)


DRAWING = KernelLibrary(f"{__name__}:DRAWING", {draw_rows.__name__: draw_rows}, {})
