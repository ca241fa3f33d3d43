"""The draw: for each row of logits its token, in the order bias, penalties, temperature, top-k, top-p, min-p."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.memory import (
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
from volumetric.kernels.cpu.sampling.doubles import (
    count_equal,
    load64,
    load_first,
    minus,
    over,
    plus,
    splat64,
    store64,
    times,
    zero_below,
)
from volumetric.kernels.cpu.sampling.select import GROUP, collect, find_cut, keep_largest, sort_largest
from volumetric.kernels.cpu.sampling.weights import (
    BLOCK,
    ROUGH,
    block_at,
    place_at,
    rough_sum,
    sum_blocks,
    weigh,
    weigh_blocks,
)
from volumetric.kernels.cpu.simd import largest, load, peak, splat, store, total, where_nan

f32 = np.float32

WORDS = (
    "logits", "size", "bias", "bias_values", "biases", "history", "recent", "generated", "histories", "top_k",
    "logprobs", "top_ids", "top_values", "temperature", "turns", "high", "low", "inverse", "least", "top_p", "min_p",
    "repetition", "presence", "frequency", "random", "token", "state", "norm",
)  # fmt: skip
"""What the words of a request mean, 8 bytes each.

``logits`` : address of `size` float32
``bias``, ``bias_values`` : addresses of `biases` int32 token ids and float32
``history``, ``recent``, ``generated`` : addresses of `histories` int32 each: token ids, how often each is among the
    tokens that the repetition penalty sees, and how often it was generated
``top_k`` : 0 is off
``logprobs`` : most likely tokens to tell, which go to ``top_ids`` (int32) and ``top_values`` (float32, logits); -1 for
    no log-probabilities at all
``temperature`` : float64, as all that follow; 0 takes the largest score
``turns``, ``high``, ``low``, ``inverse``, ``least`` : see `volumetric.kernels.cpu.sampling.weights.weight`
``random`` : in [0, 1); where the draw falls
``token``, ``state``, ``norm`` : the answer. The state is one of those below, an integer as the token is; ``norm``
    receives the logarithm of the sum of the exponentials of all logits, where log-probabilities are asked for.
"""

USABLE, NAN, INFINITE, NONE_POSSIBLE, ADJUSTED = 0, 1, 2, 3, 4
"""States of the logits; `ADJUSTED` is added where bias and penalties made them so."""

(
    _LOGITS, _SIZE, _BIAS, _BIAS_VALUES, _BIASES, _HISTORY, _RECENT, _GENERATED, _HISTORIES, _TOP_K,
    _LOGPROBS, _TOP_IDS, _TOP_VALUES, _TEMPERATURE, _TURNS, _HIGH, _LOW, _INVERSE, _LEAST, _TOP_P, _MIN_P,
    _REPETITION, _PRESENCE, _FREQUENCY, _RANDOM, _TOKEN, _STATE, _NORM,
) = (8 * i for i in range(len(WORDS)))  # fmt: skip

_LOWEST = -np.inf
_LN2 = math.log(2.0)


class _Desk(NamedTuple):
    """Scratch of one row: `width` scores, a multiple of `GROUP`, and addresses of room for more than so many each."""

    width: int
    row: int
    peaks: int
    scores: int
    numbers: int
    weights: int
    keys: int
    sums: int
    spare: int


@kernel
def _room(size):
    return (size + GROUP - 1) // GROUP * GROUP + BLOCK


def scratch_bytes(size: int) -> int:
    """Bytes of scratch for rows of `size` logits, a multiple of 64."""
    return (size + GROUP + BLOCK) * 32 // 64 * 64


@kernel
def _lay(size, scratch):
    """Divide `scratch`, the address of `scratch_bytes`."""
    room = _room(size)
    weights = scratch
    keys = weights + 8 * room
    row = keys + 8 * room
    scores = row + 4 * room
    numbers = scores + 4 * room
    peaks = numbers + 4 * room
    sums = peaks + room // 2
    spare = sums + room // 2
    return _Desk(room - BLOCK, row, peaks, scores, numbers, weights, keys, sums, spare)


@kernel
def _read(source, size, desk):
    """Copy a row, followed by -inf, and the largest of each lane of its groups.

    Returns
    -------
    top, state : the largest number, and whether there is one
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
    ids, values = load_i64(request + _BIAS), load_i64(request + _BIAS_VALUES)
    for i in range(load_i64(request + _BIASES)):
        place = row + 4 * load_i32(ids + 4 * i)
        store_f32(place, plus(load_f32(place), load_f32(values + 4 * i)))
    ids, recent = load_i64(request + _HISTORY), load_i64(request + _RECENT)
    generated = load_i64(request + _GENERATED)
    repetition = f32(load_f64(request + _REPETITION))
    presence, frequency = f32(load_f64(request + _PRESENCE)), f32(load_f64(request + _FREQUENCY))
    for i in range(load_i64(request + _HISTORIES)):
        token = load_i32(ids + 4 * i)
        if token >= size:  # a token that can be read, and not said
            continue
        score = load_f32(row + 4 * token)
        if load_i32(recent + 4 * i) > 0:
            score = over(score, repetition) if score > 0 else times(score, repetition)
        count = load_i32(generated + 4 * i)
        if count > 0:
            score = minus(score, plus(times(f32(count), frequency), presence))
        store_f32(row + 4 * token, score)


@kernel
def _tell_likeliest(request, size, top, desk):
    """Write the logarithm of the sum of exponentials, and the most likely tokens."""
    store_f64(request + _NORM, top + math.log(rough_sum(desk.row, desk.width, top, _LN2, 1.0)))
    wanted = min(load_i64(request + _LOGPROBS), size)
    if wanted == size:
        collect(desk.row, desk.width, desk.peaks, f32(_LOWEST), desk.scores, desk.numbers)
    elif wanted > 0:
        keep_largest(desk.row, desk.width, desk.peaks, wanted, desk.keys, desk.scores, desk.numbers, desk.spare)
    sort_largest(desk.scores, desk.numbers, wanted)
    ids, values = load_i64(request + _TOP_IDS), load_i64(request + _TOP_VALUES)
    for i in range(wanted):
        store_i32(ids + 4 * i, load_i32(desk.numbers + 4 * i))
        store_f32(values + 4 * i, load_f32(desk.scores + 4 * i))


@kernel
def _first_of(top, desk):
    """The number of the first score that is `top`."""
    for first in range(0, desk.width, GROUP):
        if peak(load(desk.peaks + first // GROUP * 64)) == top:
            for i in range(first, first + GROUP):
                if load_f32(desk.row + 4 * i) == top:
                    return i
    return 0


@kernel
def _floor(request, top, size, whole):
    """A score such that no token below it is drawn, given the sum of all weights, with a margin for rounding."""
    part = max((1.0 - load_f64(request + _TOP_P)) * whole / size, load_f64(request + _MIN_P))
    if part <= 0.0:
        return f32(_LOWEST)
    depth = load_f64(request + _TEMPERATURE) * (math.log(part) - 1e-5)
    return f32(top + depth + 1e-6 * (depth - abs(top)))


@kernel
def _drop_below(weights, count, cut, left):
    """Set weights below `cut` to 0, and those equal to it after the first that reach `left`."""
    cuts, same = splat64(cut), 0
    for i in range(0, count, 16):
        value = load64(weights + 8 * i)
        same += count_equal(value, cuts)
        store64(weights + 8 * i, zero_below(value, cuts, value))
    if same == 1 or same * cut <= left:
        return
    for i in range(count):
        if load_f64(weights + 8 * i) == cut:
            if left <= 0.0:
                store_f64(weights + 8 * i, 0.0)
            left -= cut


@kernel
def _place(random, count, desk):
    """Where among `count` weights, a multiple of 16, the part `random` of their sum lies."""
    point = random * sum_blocks(desk.weights, count, desk.sums)
    block, before = block_at(desk.sums, count, point)
    first = block * BLOCK
    return first + place_at(desk.weights + 8 * first, min(BLOCK, count - first), before, point)


@kernel
def _choose_among_all(request, top, desk):
    """Draw a token where none is left out: weights are computed twice for one block and kept for none."""
    heat = request + _TURNS
    point = load_f64(request + _RANDOM) * weigh_blocks(desk.row, desk.width, top, heat, desk.sums)
    block, before = block_at(desk.sums, desk.width, point)
    first = block * BLOCK
    width = min(BLOCK, desk.width - first)
    weigh(desk.row + 4 * first, width, top, heat, desk.weights)
    return first + place_at(desk.weights, width, before, point)


@kernel
def _cut(found, goal, desk):
    """The least of `found` weights that the largest ones need to reach `goal`; see `find_cut`."""
    for i in range(0, found, 16):
        store64(desk.keys + 8 * i, load64(desk.weights + 8 * i))
    return find_cut(desk.keys, found, goal, True, desk.spare)


@kernel
def _clear(cut, left, doubt):
    """Whether a goal that is larger or smaller by `doubt` would cut at the same place."""
    if cut <= 0.0:
        return False
    last = math.ceil(left / cut)
    return left - (last - 1) * cut > doubt and last * cut - left > doubt


@kernel
def _choose(request, size, top, desk):
    """Draw a token by the scores of a row."""
    top_k, heat = load_i64(request + _TOP_K), request + _TURNS
    top_p, min_p = load_f64(request + _TOP_P), load_f64(request + _MIN_P)
    some = 0 < top_k < size
    if not some and top_p >= 1.0 and min_p <= 0.0:
        return _choose_among_all(request, top, desk)
    whole, doubt = 0.0, 0.0
    if some:
        found = keep_largest(desk.row, desk.width, desk.peaks, top_k, desk.keys, desk.scores, desk.numbers, desk.spare)
    else:
        temperature = load_f64(request + _TEMPERATURE)
        if top_p < 1.0 and 1e-6 <= temperature <= 1e6:
            turn = load_f64(request + _HIGH) + load_f64(request + _LOW)
            whole, doubt = rough_sum(desk.row, desk.width, top, turn, load_f64(request + _INVERSE)), ROUGH
        elif top_p < 1.0:
            whole = weigh_blocks(desk.row, desk.width, top, heat, desk.sums)
        floor = _floor(request, top, size, whole)
        found = collect(desk.row, desk.width, desk.peaks, floor, desk.scores, desk.numbers)
    count = (found + 15) // 16 * 16
    held = weigh(desk.scores, count, top, heat, desk.weights)
    cut, left = 0.0, np.inf
    if top_p < 1.0:
        goal = top_p * (held if some else whole)
        cut, left = _cut(found, goal, desk)
        if doubt > 0.0 and not _clear(cut, left, doubt * goal):
            cut, left = _cut(found, top_p * weigh_blocks(desk.row, desk.width, top, heat, desk.sums), desk)
    if min_p > cut:
        cut, left = min_p, np.inf
    if cut > 0.0:
        _drop_below(desk.weights, count, cut, left)
    return load_i32(desk.numbers + 4 * _place(load_f64(request + _RANDOM), count, desk))


@kernel
def _draw(request, scratch):
    """Answer one request."""
    size = load_i64(request + _SIZE)
    desk = _lay(size, scratch)
    top, state = _read(load_i64(request + _LOGITS), size, desk)
    if state == USABLE and load_i64(request + _LOGPROBS) >= 0:
        _tell_likeliest(request, size, top, desk)
    if state == USABLE and load_i64(request + _BIASES) + load_i64(request + _HISTORIES) > 0:
        _adjust(request, desk.row, size)
        top, state = _read(desk.row, desk.width, desk)
        if state != USABLE:
            state += ADJUSTED
    store_i64(request + _STATE, state)
    if state != USABLE:
        return
    if load_f64(request + _TEMPERATURE) > 0.0:
        store_i64(request + _TOKEN, _choose(request, size, top, desk))
    else:
        store_i64(request + _TOKEN, _first_of(top, desk))


REQUESTS_WORD, COUNT_WORD, NEXT_WORD, SCRATCH_WORD, SCRATCH_BYTES_WORD = range(5)
"""What the control block of `draw_rows` holds: the address of so many addresses of requests, the first of them that no
thread has taken yet, and the scratch of all threads, `scratch_bytes` of the largest size for each."""


def draw_rows(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Answer requests, each by the thread that is free; an operation of the plan walker."""
    count = load_i64(control + 8 * COUNT_WORD)
    scratch = load_i64(control + 8 * SCRATCH_WORD) + thread * load_i64(control + 8 * SCRATCH_BYTES_WORD)
    i = atomic_add(control + 8 * NEXT_WORD, 1)
    while i < count:
        _draw(load_i64(load_i64(control + 8 * REQUESTS_WORD) + 8 * i), scratch)
        i = atomic_add(control + 8 * NEXT_WORD, 1)
