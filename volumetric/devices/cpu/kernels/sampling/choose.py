"""Selection of a token from the scores of a row, after bias and penalties, by temperature, top-k, top-p and min-p."""

from __future__ import annotations

import math

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import load_f64, load_i32, load_i64, store_f64
from volumetric.devices.cpu.kernels.sampling.doubles import count_equal, load64, splat64, store64, zero_below
from volumetric.devices.cpu.kernels.sampling.row_scratch import (
    AT_HIGH,
    AT_INVERSE,
    AT_LOW,
    AT_MIN_P,
    AT_RANDOM,
    AT_TEMPERATURE,
    AT_TOP_K,
    AT_TOP_P,
    AT_TURNS,
)
from volumetric.devices.cpu.kernels.sampling.select import collect_at_least, find_threshold, keep_largest
from volumetric.devices.cpu.kernels.sampling.weights import (
    BLOCK,
    ROUGH,
    block_at,
    place_at,
    rough_blocks,
    rough_sum,
    sum_blocks,
    weigh,
    weigh_blocks,
)

f32 = np.float32
_LOWEST = -np.inf


@kernel
def _floor(request, top, size, whole):
    """A score below which no token is drawn, given the sum of all weights, with a margin for rounding."""
    part = max((1.0 - load_f64(request + AT_TOP_P)) * whole / size, load_f64(request + AT_MIN_P))
    if part <= 0.0:
        return f32(_LOWEST)
    depth = load_f64(request + AT_TEMPERATURE) * (math.log(part) - 1e-5)
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
    """Index among `count` weights, a multiple of 16, at the fraction `random` of their sum."""
    point = random * sum_blocks(desk.weights, count, desk.sums)
    block, before = block_at(desk.sums, count, point)
    first = block * BLOCK
    place, _ = place_at(desk.weights + 8 * first, min(BLOCK, count - first), before, point)
    return first + place


@kernel
def _place_in_block(point, heat, top, desk):
    """Index where the running sum of all weights passes `point`, given sums of blocks; and the margins."""
    block, before = block_at(desk.sums, desk.width, point)
    first = block * BLOCK
    width = min(BLOCK, desk.width - first)
    weigh(desk.row + 4 * first, width, top, heat, desk.weights)
    place, after = place_at(desk.weights, width, before, point)
    return first + place, min(after - point, load_f64(desk.weights + 8 * place) - (after - point))


@kernel
def _rough_terms(request):
    """Whether float32 can hold the request's temperature, and the two numbers that `rough_sum` derives from it."""
    temperature = load_f64(request + AT_TEMPERATURE)
    turn = load_f64(request + AT_HIGH) + load_f64(request + AT_LOW)
    return 1e-6 <= temperature <= 1e6, turn, load_f64(request + AT_INVERSE)


@kernel
def _choose_among_all(request, top, desk):
    """Draw a token if none is excluded: by rough sums, unless their error could change it."""
    heat, random = request + AT_TURNS, load_f64(request + AT_RANDOM)
    possible, turn, inverse = _rough_terms(request)
    if possible:
        whole = rough_blocks(desk.row, desk.width, top, turn, inverse, desk.sums)
        place, clearance = _place_in_block(random * whole, heat, top, desk)
        if clearance > 2.0 * ROUGH * whole:  # the point and the running sum may both be off by this much
            return place
    whole = weigh_blocks(desk.row, desk.width, top, heat, desk.sums)
    place, _ = _place_in_block(random * whole, heat, top, desk)
    return place


@kernel
def _top_p_threshold(count, goal, desk):
    """The least of `count` weights that the largest ones need to reach `goal`; see `find_threshold`."""
    for i in range(0, count, 16):
        store64(desk.keys + 8 * i, load64(desk.weights + 8 * i))
    return find_threshold(desk.keys, count, goal, True, desk.spare)


@kernel
def _is_certain(cut, left, doubt):
    """Whether a goal larger or smaller by `doubt` would cut at the same place."""
    if cut <= 0.0:
        return False
    last = math.ceil(left / cut)
    return left - (last - 1) * cut > doubt and last * cut - left > doubt


@kernel
def choose(request, size, top, desk):
    """Draw a token by the scores of a row."""
    top_k, heat = load_i64(request + AT_TOP_K), request + AT_TURNS
    top_p, min_p = load_f64(request + AT_TOP_P), load_f64(request + AT_MIN_P)
    some = 0 < top_k < size
    if not some and top_p >= 1.0 and min_p <= 0.0:
        return _choose_among_all(request, top, desk)
    whole, doubt = 0.0, 0.0
    if some:
        candidates = keep_largest(
            desk.row, desk.width, desk.peaks, top_k, desk.keys, desk.scores, desk.numbers, desk.spare
        )
    else:
        possible, turn, inverse = _rough_terms(request)
        if top_p < 1.0 and possible:
            whole, doubt = rough_sum(desk.row, desk.width, top, turn, inverse), ROUGH
        elif top_p < 1.0:
            whole = weigh_blocks(desk.row, desk.width, top, heat, desk.sums)
        floor = _floor(request, top, size, whole)
        candidates = collect_at_least(desk.row, desk.width, desk.peaks, floor, desk.scores, desk.numbers)
    count = (candidates + 15) // 16 * 16
    mass = weigh(desk.scores, count, top, heat, desk.weights)
    cut, left = 0.0, np.inf
    if top_p < 1.0:
        goal = top_p * (mass if some else whole)
        cut, left = _top_p_threshold(candidates, goal, desk)
        if doubt > 0.0 and not _is_certain(cut, left, doubt * goal):
            cut, left = _top_p_threshold(
                candidates, top_p * weigh_blocks(desk.row, desk.width, top, heat, desk.sums), desk
            )
    if min_p > cut:
        cut, left = min_p, np.inf
    if cut > 0.0:
        _drop_below(desk.weights, count, cut, left)
    return load_i32(desk.numbers + 4 * _place(load_f64(request + AT_RANDOM), count, desk))
