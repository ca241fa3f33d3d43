"""Attention of many rows with bfloat16 products, for devices that round activations anyway.

`append` has rounded queries, keys and values to bfloat16, in whatever type they are stored. `unpack_cache` copies keys
and values of one layer to panels of bfloat16 pairs: keys ``[kv_head, position / 16, head_dim / 2]`` and values
``[kv_head, head_dim / 16, position / 2]`` of 16 × 2 numbers, head dimensions padded with zeros to whole vectors.
`attend_bfloat16` rounds softmax weights and multiplies with `brain_tile`; sums and the softmax are float32. Copying
costs 2 · kv_heads · head_dim numbers a position, the products 4 · heads · head_dim · rows, so for a prompt the copy is
negligible.

For few rows a copy does not pay: `attend_few` gets the same bits from float32 products of the same numbers, because a
product of two bfloat16 numbers is exact in float32, and the processor adds the two of a pair one after the other.

Limit: twice the rate of float32 products. 512 tokens of SmolLM2-135M take 9 G multiplications and additions, 39 ms in
float32 on two Zen 4 cores without the softmax, 20 ms in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.attention import (
    AS_BRAIN,
    ATTEND_ARGUMENTS,
    seen_from,
    seen_until,
    sink_of,
    softmax_row,
    store_mixed,
)
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import store_f32
from volumetric.devices.cpu.kernels.panel_microkernels import brain_tiles
from volumetric.devices.cpu.kernels.simd import first_lanes, load, load_half, splat, store_brain, store_pairs
from volumetric.devices.cpu.kernels.step_words import (
    first_row,
    first_row_position,
    last_row,
    number,
    scratch,
    slot_address,
    state_word,
    unpacked_cache,
    word,
)

f32 = np.float32

(_HEADS, _KV_HEADS, _HEAD_DIM, _, _, _SOFTCAP, _STATE, _QUERIES, _HELD, _, _) = range(1, len(ATTEND_ARGUMENTS))


def unpacked_cache_bytes(kv_heads: int, head_dim: int) -> int:
    """Bytes of an unpacked cache for each position."""
    return 2 * 2 * kv_heads * (-(-head_dim // 16) * 16)


@kernel
def _numbers(size_of, address):
    """16 numbers of a cache of float32 (`size_of` 4) or float16."""
    if size_of == 4:
        return load(address)
    return load_half(address)


@kernel
def _unpack_keys(source, out, size, size_of):
    """One panel of keys: dimensions in pairs, zeros up to a whole number of vectors."""
    zero = splat(f32(0.0))
    for i in range(0, (size + 15) // 16 * 16, 2):
        first = _numbers(size_of, source + 16 * size_of * i) if i < size else zero
        second = _numbers(size_of, source + 16 * size_of * (i + 1)) if i + 1 < size else zero
        store_pairs(out + 32 * i, first, second)


@kernel
def _unpack_values(source, out, padded, size_of, panel_stride, valid):
    """16 positions of values, in pairs of positions.

    Positions from `valid` on become zeros: an earlier use of the cache may have left NaN there, which a weight of 0
    keeps.
    """
    zero = splat(f32(0.0))
    for pair in range(8):
        here = source + 2 * pair * padded * size_of
        for i in range(0, padded, 16):
            first = _numbers(size_of, here + i * size_of) if 2 * pair < valid else zero
            second = _numbers(size_of, here + (padded + i) * size_of) if 2 * pair + 1 < valid else zero
            store_pairs(out + i // 16 * panel_stride + 64 * pair, first, second)


def unpack_cache(storage: str) -> Callable[..., None]:
    """Copy the positions of a layer's cache that are visible to the rows of this call."""
    size_of = 4 if storage == "float32" else 2

    def open_cache(step: Any, thread: Any, threads: Any, control: Any) -> None:
        size, kv_heads = word(step, _HEAD_DIM), word(step, _KV_HEADS)
        padded = (size + 15) // 16 * 16
        state = word(step, _STATE)
        capacity, first = state_word(control, state, 2), state_word(control, state, 3)
        room, places = unpacked_cache(control)
        origin = first_row_position(word(step, _HELD), control)
        low = seen_from(step, origin + first_row(control)) // 16
        end = origin + last_row(step, control)
        panels = (end + 15) // 16 - low
        for task in range(panels * kv_heads * thread // threads, panels * kv_heads * (thread + 1) // threads):
            head, panel = task // panels, low - first // 16 + task % panels
            keys = state_word(control, state, 0) + (head * capacity + panel * 16) * size * size_of
            _unpack_keys(keys, room + (head * places + panel * 16) * padded * 2, size, size_of)
            values = state_word(control, state, 1) + (head * capacity + panel * 16) * padded * size_of
            out = room + (kv_heads + head) * places * padded * 2 + panel * 8 * 64
            _unpack_values(values, out, padded, size_of, places * 32, end - first - panel * 16)

    return open_cache


@kernel
def _round_row(source, out, count):
    """Round `count` numbers to bfloat16, and write zeros to the end of the last vector."""
    for i in range(0, count, 16):
        store_brain(out + 2 * i, first_lanes(count - i, load(source + 4 * i), splat(f32(0.0))))


@kernel
def _attend_rounded_tile(step, control, room, rows, wide, row, head, valid, until):
    """As `_attend_tile` for consecutive rows of a head."""
    size, heads, kv_heads = word(step, _HEAD_DIM), word(step, _HEADS), word(step, _KV_HEADS)
    padded = (size + 15) // 16 * 16
    opened, places = unpacked_cache(control)
    kv_head = head // (heads // kv_heads)
    place = row + first_row_position(word(step, _HELD), control)
    low = seen_from(step, place) // 16 * 16
    start = low - state_word(control, word(step, _STATE), 3)  # row of the cache, and of its copy
    panels = (until - low + 15) // 16
    mixed = room + 64
    x = mixed + rows * padded * 4
    scores = x + rows * padded * 2
    stride = panels * 64
    for m in range(rows):
        source = slot_address(control, word(step, _QUERIES)) + ((row + m) * heads + head) * size * 4
        _round_row(source, x + m * padded * 2, size)
    keys = opened + (kv_head * places + start) * padded * 2
    brain_tiles(rows, wide, keys, padded * 32, panels, x, padded * 2, padded, scores, stride)
    for m in range(rows):
        own = place + m
        last = seen_until(step, own, until)
        first = min(seen_from(step, own), last - 1) - low
        here, sink = scores + m * stride, sink_of(step, head)
        sums = softmax_row(here, first, last - low, 16 * panels, number(step, _SOFTCAP), sink, AS_BRAIN)
        store_f32(room + 4 * m, sums)
    values = opened + (kv_heads + kv_head) * places * padded * 2 + start * 32
    brain_tiles(rows, wide, values, places * 32, padded // 16, scores, stride, 16 * panels, mixed, 4 * padded)
    store_mixed(step, control, room, row, head, valid, 1)


def attend_bfloat16(rows: int, wide: int) -> Callable[..., None]:
    """Attention over the unpacked cache in tiles of `rows` rows × `wide` panels.

    Scratch: `rows` rows of scores, of weighted values, of rounded queries, and their sums.
    """

    def attend_rounded(step: Any, thread: Any, threads: Any, control: Any) -> None:
        heads = word(step, _HEADS)
        origin = first_row_position(word(step, _HELD), control)
        start = first_row(control)
        end = last_row(step, control)
        tiles = (end - start + rows - 1) // rows
        for item in range(thread, tiles * heads, threads):
            # Later rows see more positions: the longest items first, distributed round-robin.
            row = start + (tiles - 1 - item // heads) * rows
            until = seen_until(step, origin + min(row + rows, end) - 1, origin + end)
            room = scratch(control, thread)
            _attend_rounded_tile(step, control, room, rows, wide, row, item % heads, min(rows, end - row), until)

    return attend_rounded
