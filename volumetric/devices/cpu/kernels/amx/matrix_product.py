"""`matrix_product`: a product step for many rows with integer panels, on matrix registers.

Bits and arguments are those of `products.rows_product` and `products.tile_product`, which it replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.amx.amx_scratch import (
    MATRIX_ROWS,
    SUM_BYTES,
    TILES_TOGETHER,
    UNITS_TOGETHER,
    about_bytes,
    sums_bytes,
    unpacked_unit_bytes,
)
from volumetric.devices.cpu.kernels.amx.amx_tiles import (
    SCALED_ROWS,
    begin_tiles,
    end_tiles,
    multiply_units,
    open_codes,
    scale_rows,
)
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i32, store_f32
from volumetric.devices.cpu.kernels.panels import BY_NAME, UNIT
from volumetric.devices.cpu.kernels.products import PRODUCT_ARGUMENTS, fetch_tile, finish_tile
from volumetric.devices.cpu.kernels.step_words import last_row, scratch, slot_address, word

_PREPARED, _ROW_BYTES, _PANELS, _UNITS, _WEIGHTS, _PANEL_BYTES = map(
    PRODUCT_ARGUMENTS.index, ("prepared", "row_bytes", "panels", "units", "weights", "panel_bytes")
)

f32 = np.float32


@kernel
def gather_about(x, x_stride, units, totals, out):
    """Of 16 prepared rows, side by side for each block of 32 k: their scale d, then ``d · Σq`` of `totals` groups."""
    blocks = 2 * units
    size = 64 * (1 + totals)
    for m in range(MATRIX_ROWS):
        about = x + m * x_stride + UNIT * units
        for block in range(blocks):
            here = about + 4 * block
            target = out + size * block + 4 * m
            scale = load_f32(here)
            store_f32(target, scale)
            if totals == 1:
                store_f32(target + 64, load_f32(here + 8 * blocks))
            elif totals == 2:  # from -8 · Σq of the first half and of both
                first = load_i32(here + 12 * blocks)
                eighth = scale * f32(-0.125)
                store_f32(target + 64, f32(first) * eighth)
                store_f32(target + 128, f32(load_i32(here + 4 * blocks) - first) * eighth)


@kernel
def multiply_unpacked(name, x, x_stride, opened, about, units, rows, sums, out, out_stride, adds, ahead, end):
    """Multiply unpacked units by `rows` of 16 prepared rows; prefetch memory from `ahead` to `end`."""
    multiply_units(name, x, x_stride, opened, units, sums)
    left = 2 * units * ((rows + SCALED_ROWS - 1) // SCALED_ROWS)
    for m in range(0, rows, SCALED_ROWS):
        lines = ((end - ahead) // 64 + left // 2) // left
        target = out + m * out_stride
        scale_rows(name, sums + 64 * m, opened, about + 4 * m, units, target, out_stride, adds, ahead, lines)
        ahead += 128 * units * lines
        left -= 2 * units


def matrix_product(name: str, activation: int, gated: int) -> Callable[..., None]:
    """Product of rows prepared by a `prepare` step, rounded to int8, with panels of format `name`.

    Scratch: `layout.matrix_scratch`.
    """
    form = BY_NAME[name]
    unit_bytes, own, sum_room = unpacked_unit_bytes(form), 2 * about_bytes(form), sums_bytes(form)
    totals = about_bytes(form) // 64 - 1
    each = 2 if gated else 1

    def matrix_product(step: Any, thread: Any, threads: Any, control: Any) -> None:
        count = last_row(step, control)
        panels = word(step, _PANELS)
        units = word(step, _UNITS)
        stride = word(step, _PANEL_BYTES)
        x_stride = word(step, _ROW_BYTES)
        prepared = slot_address(control, word(step, _PREPARED))
        results = scratch(control, thread)
        sums = results + TILES_TOGETHER * each * SUM_BYTES
        opened = sums + sum_room
        about = opened + each * UNITS_TOGETHER * unit_bytes
        tiles = (count + MATRIX_ROWS - 1) // MATRIX_ROWS
        # Fewer tiles share a panel if threads would be idle otherwise.
        together = min(TILES_TOGETHER, max(1, tiles * panels // (4 * threads)))
        parts = (tiles + together - 1) // together
        gathered = -1
        begin_tiles(name)
        for at in range(parts * panels * thread // threads, parts * panels * (thread + 1) // threads):
            panel = at % panels
            first = at // panels * together
            last = min(first + together, tiles)
            if first != gathered:
                gathered = first
                for tile in range(first, last):
                    x = prepared + tile * MATRIX_ROWS * x_stride
                    gather_about(x, x_stride, units, totals, about + (tile - first) * units * own)
            source = word(step, _WEIGHTS) + panel * each * stride
            if tiles > 1:
                for row in range(first * MATRIX_ROWS, last * MATRIX_ROWS, MATRIX_ROWS):
                    fetch_tile(step, control, row, count, panel * each, each, MATRIX_ROWS, gated)
            for start in range(0, units, UNITS_TOGETHER):
                here = min(UNITS_TOGETHER, units - start)
                for p in range(each):
                    open_codes(name, source + p * stride, start, here, opened + p * UNITS_TOGETHER * unit_bytes)
                # Prefetch the next panel: each tile requests a part of it.
                lines = stride // 64 * start // units
                more = stride // 64 * (start + here) // units - lines
                for tile in range(first, last):
                    row = tile * MATRIX_ROWS
                    x = prepared + row * x_stride + UNIT * start
                    known = about + ((tile - first) * units + start) * own
                    rows = min(MATRIX_ROWS, count - row)
                    for p in range(each):
                        codes = opened + p * UNITS_TOGETHER * unit_bytes
                        out = results + (tile - first) * each * SUM_BYTES + 64 * p
                        ahead = source + (each + p) * stride + 64 * lines
                        end = ahead + more * (tile + 1 - first) // (last - first) * 64
                        ahead += more * (tile - first) // (last - first) * 64
                        multiply_unpacked(
                            name, x, x_stride, codes, known, here, rows, sums, out, 64 * each, start, ahead, end
                        )
            for tile in range(first, last):
                row, tile_sums = tile * MATRIX_ROWS, results + (tile - first) * each * SUM_BYTES
                finish_tile(step, control, row, count, panel * each, each, tile_sums, MATRIX_ROWS, activation, gated)
        end_tiles()

    return matrix_product
