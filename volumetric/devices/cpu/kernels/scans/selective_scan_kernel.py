"""The selective scan of `layers.selective_scan` over the rows of a sequence, sixteen channels in the lanes of a vector.

Threads divide these channels of all sequences; a row's results depend neither on the thread nor on the other rows. The
elements of the state are in a loop, so nothing of the size rows × channels × elements is ever stored. During several
rows the state is in the thread's scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.maths import exp, sigmoid, softplus
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i64, store_f32
from volumetric.devices.cpu.kernels.row_cells import sequence_address, state_address
from volumetric.devices.cpu.kernels.simd import load, splat, store, where_less
from volumetric.devices.cpu.kernels.step_words import COUNT_WORD, number, scratch, slot_address, slot_stride, word

f32 = np.float32

VALUES = ("x", "dt", "b", "c", "z", "y")
SCAN_ARGUMENTS = (
    *VALUES,
    "x_start",
    "dt_start",
    "b_start",
    "c_start",
    "z_start",
    "state",
    "heads",
    "head_dim",
    "groups",
    "size",
    "rate",
    "skip",
    "bias",
    "dt_factor",
    "z_factor",
    "dt_min",
    "dt_max",
)
"""Slots of the values, their first columns, and the facts of a scan. `rate` is ``[size, channels]``, or ``[channels]``
if a head has one; it, `skip` and `bias` are expanded to all channels and padded to whole vectors."""

_START = len(VALUES)
EACH_HEAD, EACH_CHANNEL, MIXED = range(3)
"""Layout of steps in lanes: the sixteen channels are of one head, or each is a head, or neither."""


def scan_scratch(size: int) -> int:
    """Bytes of scratch of a thread: the state of sixteen channels, and a step for each."""
    return 64 * (size + 1) + 64


@kernel
def _value(step, control, at, row):
    """Address of the columns of value number `at` in a row."""
    slot = word(step, at)
    return slot_address(control, slot) + row * slot_stride(control, slot) + 4 * word(step, _START + at)


@kernel
def _steps(form, dt, channel, head_dim, left, room):
    """Dt of sixteen channels from the row's steps of all heads."""
    if form == EACH_HEAD:
        return splat(load_f32(dt + 4 * (channel // head_dim)))
    if form == EACH_CHANNEL:
        return load_part(dt + 4 * channel, left)
    for lane in range(16):
        head = (channel + min(lane, left - 1)) // head_dim
        store_f32(room + 4 * lane, load_f32(dt + 4 * head))
    return load(room)


@kernel
def _element(state, decay, inflow, b, c, total):
    """One element of the state of sixteen channels: its new value, and its contribution to the output."""
    now = decay * load(state) + inflow * splat(load_f32(b))
    store(state, now)
    return total + now * splat(load_f32(c))


def selective_scan(form: int, each: int, gated: int) -> Callable[..., None]:
    """The scan.

    Parameters
    ----------
    form : layout of steps in the lanes
    each : whether each element of the state has its own rate
    gated : whether there is z
    """

    def selective_scan(step: Any, thread: Any, threads: Any, control: Any) -> None:
        zero = splat(f32(0.0))
        head_dim, groups, size = word(step, 13), word(step, 14), word(step, 15)
        channels = word(step, 12) * head_dim
        wide = channels // groups
        padded = (channels + 15) // 16 * 16
        in_group = (wide + 15) // 16
        blocks = groups * in_group
        count = load_i64(control + 8 * COUNT_WORD) * blocks
        room = scratch(control, thread)
        for share in range(count * thread // threads, count * (thread + 1) // threads):
            piece = sequence_address(control, share // blocks)
            group = share % blocks // in_group
            inside = share % in_group * 16
            left = min(wide - inside, 16)
            at = group * wide + inside
            first, last = load_i64(piece), load_i64(piece + 8)
            stored = state_address(control, share // blocks, word(step, 11)) + 4 * at
            states, apart = room + 64, 64
            if last == first + 1 and left == 16:
                states, apart = stored, 4 * channels
            else:
                for n in range(size):
                    store(states + 64 * n, load_part(stored + 4 * channels * n, left))
            rates, skip, bias = word(step, 16) + 4 * at, load(word(step, 17) + 4 * at), load(word(step, 18) + 4 * at)
            low, high = splat(number(step, 21)), splat(number(step, 22))
            for row in range(first, last):
                dt = _steps(form, _value(step, control, 1, row), at, head_dim, left, room)
                dt = softplus(dt * splat(number(step, 19)) + bias)
                dt = where_less(dt, low, low, where_less(high, dt, high, dt))
                x = load_part(_value(step, control, 0, row) + 4 * at, left)
                inflow = dt * x
                b = _value(step, control, 2, row) + 4 * size * group
                c = _value(step, control, 3, row) + 4 * size * group
                y0 = skip * x
                y1 = y2 = y3 = zero
                whole = size // 4 * 4
                if each:
                    for n in range(0, whole, 4):
                        place, rate = states + apart * n, rates + 4 * padded * n
                        d0, d1 = exp(dt * load(rate)), exp(dt * load(rate + 4 * padded))
                        d2, d3 = exp(dt * load(rate + 8 * padded)), exp(dt * load(rate + 12 * padded))
                        y0 = _element(place, d0, inflow, b + 4 * n, c + 4 * n, y0)
                        y1 = _element(place + apart, d1, inflow, b + 4 * n + 4, c + 4 * n + 4, y1)
                        y2 = _element(place + 2 * apart, d2, inflow, b + 4 * n + 8, c + 4 * n + 8, y2)
                        y3 = _element(place + 3 * apart, d3, inflow, b + 4 * n + 12, c + 4 * n + 12, y3)
                    for n in range(whole, size):
                        decay = exp(dt * load(rates + 4 * padded * n))
                        y0 = _element(states + apart * n, decay, inflow, b + 4 * n, c + 4 * n, y0)
                else:
                    decay = exp(dt * load(rates))
                    for n in range(0, whole, 4):
                        place = states + apart * n
                        y0 = _element(place, decay, inflow, b + 4 * n, c + 4 * n, y0)
                        y1 = _element(place + apart, decay, inflow, b + 4 * n + 4, c + 4 * n + 4, y1)
                        y2 = _element(place + 2 * apart, decay, inflow, b + 4 * n + 8, c + 4 * n + 8, y2)
                        y3 = _element(place + 3 * apart, decay, inflow, b + 4 * n + 12, c + 4 * n + 12, y3)
                    for n in range(whole, size):
                        y0 = _element(states + apart * n, decay, inflow, b + 4 * n, c + 4 * n, y0)
                y = (y0 + y1) + (y2 + y3)
                if gated:
                    z = load_part(_value(step, control, 4, row) + 4 * at, left) * splat(number(step, 20))
                    y = y * (z * sigmoid(z))
                out = slot_address(control, word(step, 5)) + row * slot_stride(control, word(step, 5)) + 4 * at
                store_part(out, y, left)
            if states != stored:
                for n in range(size):
                    store_part(stored + 4 * channels * n, load(states + 64 * n), left)

    return selective_scan
