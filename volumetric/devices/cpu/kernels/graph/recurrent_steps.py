"""Rotary embedding and recurrent cells.

A recurrent operation is one step of the table per time step; threads divide the hidden units, with a barrier between
steps, because each unit needs all of the previous state, or that of its head. Units go in groups of up to 16 of one
head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.cells import backward, forward, keeps
from volumetric.devices.cpu.kernels.graph.gemm_microkernels import dot_tile, panel_tile
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part, transpose_block
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import number, scratch, word

f32 = np.float32

ROPE_ARGUMENTS = ("x", "cos", "sin", "y", "rows", "length", "heads", "width", "half", "sign")


def rope(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Rotate the pairs (i, i + half) of each head; `rows` counts all heads of all positions."""
    length, heads, width, half = word(step, 5), word(step, 6), word(step, 7), word(step, 8)
    sign = splat(number(step, 9))
    for row in range(share(word(step, 4), thread, threads), share(word(step, 4), thread + 1, threads)):
        at = row // heads % length * half
        x = word(step, 0) + 4 * row * width
        y = word(step, 3) + 4 * row * width
        for i in range(0, half, 16):
            left = half - i
            cos = load_part(word(step, 1) + 4 * (at + i), left)
            sin = load_part(word(step, 2) + 4 * (at + i), left) * sign
            a = load_part(x + 4 * i, left)
            b = load_part(x + 4 * (half + i), left)
            store_part(y + 4 * i, a * cos - b * sin, left)
            store_part(y + 4 * (half + i), b * cos + a * sin, left)
        for i in range(2 * half, width, 16):
            store_part(y + 4 * i, load_part(x + 4 * i, width - i), width - i)


PACK_ARGUMENTS = ("weight", "packed", "size", "width")


@kernel
def _groups(size, width):
    """Groups of up to 16 hidden units, head by head, of `width` each."""
    return size // width * ((width + 15) // 16)


@kernel
def _head(group, width):
    """First unit of a group's head."""
    return group // ((width + 15) // 16) * width


@kernel
def _unit(group, width):
    """First unit of a group, in its head."""
    return group % ((width + 15) // 16) * 16


@kernel
def _group_bytes(width, blocks):
    """Bytes of the packed weights of a group."""
    return (width + 15) // 16 * 16 * blocks * 64


def packed_bytes(size: int, width: int, blocks: int) -> int:
    """Bytes of all packed weights."""
    groups = -(-width // 16)
    return size // width * groups * (groups * 16 * blocks * 64)


def recurrent_pack(blocks: int) -> Callable[..., None]:
    """Reorder weights ``[blocks · H, width]`` to ``[groups, k, blocks, 16]``, in which panels read them."""

    def recurrent_pack(step: Any, thread: Any, threads: Any, control: Any) -> None:
        size, width = word(step, 2), word(step, 3)
        groups = _groups(size, width)
        for group in range(share(groups, thread, threads), share(groups, thread + 1, threads)):
            out = word(step, 1) + group * _group_bytes(width, blocks)
            unit = _unit(group, width)
            for block in range(blocks):
                source = word(step, 0) + 4 * width * (block * size + _head(group, width) + unit)
                for k in range(0, width, 16):
                    here = out + 64 * (k * blocks + block)
                    rows, columns = min(16, width - unit), min(16, width - k)
                    transpose_block(source + 4 * k, 4 * width, rows, columns, here, 64 * blocks)

    return recurrent_pack


STEP_ARGUMENTS = (
    "from_x",
    "weight",
    "bias",
    "h",
    "h_row",
    "c",
    "c_row",
    "y",
    "kept",
    "batch",
    "length",
    "size",
    "at",
    "packed",
    "keep",
    "width",
    "after",
    "after_row",
)
"""`h` and `c` are the states before step `at`, their rows `h_row`, `c_row` bytes apart; `after` is where states other
than h go; `packed`, `keep`: 0 if none; `kept`: 0 if nothing reads it."""


@kernel
def _is_reset(keep, length, row, at):
    """Whether a row is reset at step `at`."""
    return keep != 0 and load_f32(keep + 4 * (row * length + at)) == f32(0.0)


@kernel
def _pre_activations(rows, blocks, h, h_row, weight, size, width, unit, units, room):
    """``room[row, block, lane] = h[row] · weight[block, unit + lane]`` for `units` ≤ 16 lanes."""
    sums = room + 64 * rows * blocks
    for block in range(blocks):
        source = weight + 4 * width * (block * size + unit)
        lane = 0
        while units - lane >= 4:
            dot_tile(rows, 4, h, h_row, source + 4 * width * lane, 4 * width, width, sums)
            for m in range(rows):
                for n in range(4):
                    store_f32(room + 64 * (m * blocks + block) + 4 * (lane + n), load_f32(sums + 4 * (4 * m + n)))
            lane += 4
        while lane < units:
            dot_tile(rows, 1, h, h_row, source + 4 * width * lane, 4 * width, width, sums)
            for m in range(rows):
                store_f32(room + 64 * (m * blocks + block) + 4 * lane, load_f32(sums + 4 * m))
            lane += 1


@kernel
def _step_units(cell, blocks, stored_count, step, row, unit, left, room, zeros):
    """State of up to 16 units of one row from their products with the previous state, or from `zeros`."""
    size, length, at = word(step, 11), word(step, 10), word(step, 12)
    place = row * length + at
    h = word(step, 3) + row * word(step, 4) + 4 * unit
    c = word(step, 5) + row * word(step, 6) + 4 * unit
    c_step = 4 * size
    if _is_reset(word(step, 14), length, row, at):
        room = zeros
        h = zeros
        c = zeros
        c_step = 0
    forward(
        cell,
        word(step, 0) + 4 * (place * blocks * size + unit),
        0,
        room,
        64,
        0 if word(step, 2) == 0 else word(step, 2) + 4 * unit,
        h,
        c,
        c_step,
        word(step, 7) + 4 * (place * size + unit),
        0 if word(step, 8) == 0 else word(step, 8) + 4 * (place * stored_count * size + unit),
        word(step, 16) + row * word(step, 17) + 4 * unit,
        4 * size,
        size,
        left,
    )


def recurrent_step(cell: int, blocks: int, stored_count: int) -> Callable[..., None]:
    """One step of a recurrent layer."""

    def recurrent_step(step: Any, thread: Any, threads: Any, control: Any) -> None:
        batch, size, width = word(step, 9), word(step, 11), word(step, 15)
        h_row, weight = word(step, 4), word(step, 1)
        zeros = scratch(control, thread)
        room = zeros + 64 * blocks
        apart = 64 * blocks
        for block in range(blocks):
            store(zeros + 64 * block, splat(f32(0.0)))
        groups = _groups(size, width)
        for group in range(share(groups, thread, threads), share(groups, thread + 1, threads)):
            head = _head(group, width)
            units = min(16, width - _unit(group, width))
            unit = head + _unit(group, width)
            h = word(step, 3) + 4 * head
            panels = word(step, 13)
            if panels != 0:
                panels += group * _group_bytes(width, blocks)
            row = 0
            while batch - row >= 4:
                if panels != 0:
                    panel_tile(4, blocks, h + row * h_row, h_row, 4, panels, apart, width, zeros, 0, room, apart)
                else:
                    _pre_activations(4, blocks, h + row * h_row, h_row, weight, size, width, unit, units, room)
                for m in range(4):
                    _step_units(cell, blocks, stored_count, step, row + m, unit, units, room + 64 * blocks * m, zeros)
                row += 4
            while row < batch:
                if panels != 0:
                    panel_tile(1, blocks, h + row * h_row, h_row, 4, panels, apart, width, zeros, 0, room, apart)
                else:
                    _pre_activations(1, blocks, h + row * h_row, h_row, weight, size, width, unit, units, room)
                _step_units(cell, blocks, stored_count, step, row, unit, units, room, zeros)
                row += 1

    return recurrent_step


BACK_ARGUMENTS = (
    "gy",
    "y",
    "kept",
    "weight",
    "h",
    "h_row",
    "c",
    "c_row",
    "g_x",
    "g_h",
    "arrived",  # [n, B, H]: as `carry`, from the following step or, for the last step, from outside; 0 = none
    "carry",  # [n, B, H], if the cell has any: gradients of states before the step that its products lack
    "batch",
    "length",
    "size",
    "at",
    "keep",
    "width",
)


@kernel
def _back_products(g, weight, wide, size, left):
    """``Σ_r g[r] weight[r, :]`` of up to 16 columns of `size`."""
    zero = splat(f32(0.0))
    s0 = zero
    s1 = zero
    s2 = zero
    s3 = zero
    r = 0
    while wide - r >= 4:
        s0 = s0 + splat(load_f32(g + 4 * r)) * load_part(weight + 4 * size * r, left)
        s1 = s1 + splat(load_f32(g + 4 * r + 4)) * load_part(weight + 4 * size * (r + 1), left)
        s2 = s2 + splat(load_f32(g + 4 * r + 8)) * load_part(weight + 4 * size * (r + 2), left)
        s3 = s3 + splat(load_f32(g + 4 * r + 12)) * load_part(weight + 4 * size * (r + 3), left)
        r += 4
    while r < wide:
        s0 = s0 + splat(load_f32(g + 4 * r)) * load_part(weight + 4 * size * r, left)
        r += 1
    return (s0 + s1) + (s2 + s3)


@kernel
def _step_units_back(cell, blocks, stored_count, own, step, row, unit, left, products, zeros):
    """Gradients of up to 16 units of one row; `products` are those of the gradients of the following step."""
    size, length, at, keep = word(step, 14), word(step, 13), word(step, 15), word(step, 16)
    place = row * length + at
    g = load_part(word(step, 0) + 4 * (place * size + unit), left)
    arrived = 0 if word(step, 10) == 0 else word(step, 10) + 4 * (row * size + unit)
    if at + 1 < length:
        if _is_reset(keep, length, row, at + 1):
            arrived = 0
        else:
            g = g + products
    h = word(step, 4) + row * word(step, 5) + 4 * unit
    c = word(step, 6) + row * word(step, 7) + 4 * unit
    c_step = 4 * size
    if _is_reset(keep, length, row, at):
        h = zeros
        c = zeros
        c_step = 0
    backward(
        cell,
        g,
        arrived,
        4 * word(step, 12) * size,
        word(step, 1) + 4 * (place * size + unit),
        word(step, 2) + 4 * (place * stored_count * size + unit),
        word(step, 2) + 4 * ((place * stored_count + own) * size + unit),
        4 * size,
        h,
        c,
        c_step,
        word(step, 8) + 4 * (place * blocks * size + unit),
        word(step, 9) + 4 * (place * blocks * size + unit),
        word(step, 11) + 4 * (row * size + unit),
        size,
        left,
    )


def recurrent_back(cell: int, blocks: int, stored_count: int) -> Callable[..., None]:
    """Gradients of one step of a recurrent layer, from those of the following step."""
    own = keeps(cell)

    def recurrent_back(step: Any, thread: Any, threads: Any, control: Any) -> None:
        batch, length, size, at = word(step, 12), word(step, 13), word(step, 14), word(step, 15)
        width = word(step, 17)
        groups = _groups(size, width)
        wide = blocks * size
        # With one head the products of all blocks are contiguous; with several, those of a block are apart from the
        # next.
        spans, span = (1, wide) if width == size else (blocks, width)
        zero = splat(f32(0.0))
        room = scratch(control, thread)
        store(room, zero)
        for group in range(share(groups, thread, threads), share(groups, thread + 1, threads)):
            head = _head(group, width)
            left = min(16, width - _unit(group, width))
            unit = head + _unit(group, width)
            weight = word(step, 3) + 4 * (head * width + _unit(group, width))
            row = 0
            while row < batch:
                behind = word(step, 9) + 4 * ((row * length + at + 1) * wide + head)
                rows = 1
                apart = 4 * length * wide
                if left == 16 and batch - row >= 8:  # eight sums hide the latency of additions
                    rows = 8
                    if at + 1 < length:
                        panel_tile(8, 1, behind, apart, 4, weight, 4 * width, span, room, 0, room + 64, 64)
                        for n in range(1, spans):
                            g, more = behind + 4 * n * size, weight + 4 * n * size * width
                            panel_tile(8, 1, g, apart, 4, more, 4 * width, span, room + 64, 64, room + 64, 64)
                elif left == 16 and batch - row >= 4:
                    rows = 4
                    if at + 1 < length:
                        panel_tile(4, 1, behind, apart, 4, weight, 4 * width, span, room, 0, room + 64, 64)
                        for n in range(1, spans):
                            g, more = behind + 4 * n * size, weight + 4 * n * size * width
                            panel_tile(4, 1, g, apart, 4, more, 4 * width, span, room + 64, 64, room + 64, 64)
                elif at + 1 < length:
                    products = _back_products(behind, weight, span, width, left)
                    for n in range(1, spans):
                        more = weight + 4 * n * size * width
                        products = products + _back_products(behind + 4 * n * size, more, span, width, left)
                    store(room + 64, products)
                for m in range(rows):
                    _step_units_back(
                        cell, blocks, stored_count, own, step, row + m, unit, left, load(room + 64 + 64 * m), room
                    )
                row += rows

    return recurrent_back
