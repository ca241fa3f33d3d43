"""The product steps: ``act(norm(x) Wᵀ + b)``, gated or not, plus a residual, capped.

Two forms with the same arguments. `vector_product` serves up to `VECTOR_ROWS` rows: each thread prepares the rows for
itself (cheaper than a barrier: 0.5 µs for 576 numbers) and runs over its panels once. `tile_product` serves more: the
rows were prepared by a `prepare` step; each thread opens a group of panels into its scratch and runs over the rows.

Who computes what depends on the number of threads; every result is one sum with one order, so the bits do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.maths import activate, tanh
from volumetric.kernels.cpu.matvec import panel_dot
from volumetric.kernels.cpu.memory import fetch_to_write, load_i32
from volumetric.kernels.cpu.prepare import prepare_row
from volumetric.kernels.cpu.simd import load, splat, store, store_first
from volumetric.kernels.cpu.steps import first_row, last_row, number, scratch, slot_address, slot_stride, word
from volumetric.kernels.cpu.tiles import brain_tiles, byte_block_bytes, float_tiles, integer_tiles
from volumetric.kernels.cpu.unpack import unpack_bytes, unpack_floats

FLOATS, OPENED, BRAIN = -1, -2, -3
"""Tiles that are not of bytes, see `tile_product`."""

VECTOR_ROWS = 4
"""Rows up to which panels are read once and multiplied row by row; beyond, register tiles are faster."""

PRODUCT_ARGUMENTS = (
    "input",  # slot
    "k",  # numbers in a row
    "norm",  # NO_NORM, RMS_NORM, LAYER_NORM
    "eps",
    "norm_weight",  # address or 0
    "norm_bias",
    "weights",  # address of panel 0 (of the gate, if gated)
    "panel_stride",  # from a panel to the next that this step multiplies as its own column
    "panels",  # columns / 16, rounded up
    "units",
    "columns",  # address of (first column, number of columns) int32 pairs, one for each panel
    "bias",  # address of float32 in panel order, or 0
    "residual",  # slot or -1
    "output",  # slot
    "softcap",  # 0 = none
    "up_bias",  # gated: bias of the second matrix
    "panel_bytes",  # gated: the up panel lies this far behind its gate panel
    "prepared",  # slot of the shared prepared rows, for tiles
    "row_bytes",  # bytes of a prepared row
    "rounding",  # of the prepared rows, a number of `ROUNDINGS`
    "fresh",  # vector form: rows must be prepared (an earlier step did not do it)
)

(
    _INPUT,
    _K,
    _NORM,
    _EPS,
    _NORM_WEIGHT,
    _NORM_BIAS,
    _WEIGHTS,
    _PANEL_STRIDE,
    _PANELS,
    _UNITS,
    _COLUMNS,
    _BIAS,
    _RESIDUAL,
    _OUTPUT,
    _SOFTCAP,
    _UP_BIAS,
    _PANEL_BYTES,
    _PREPARED,
    _ROW_BYTES,
    _ROUNDING,
    _FRESH,
) = range(21)


@kernel
def _prepare(step, control, row, out, room):
    prepare_row(
        slot_address(control, word(step, _INPUT)) + row * slot_stride(control, word(step, _INPUT)),
        out,
        room,
        word(step, _K),
        word(step, _ROUNDING),
        word(step, _NORM),
        number(step, _EPS),
        word(step, _NORM_WEIGHT),
        word(step, _NORM_BIAS),
    )


@kernel
def _row_of(control, slot, row):
    """Address of a row of a value."""
    return slot_address(control, slot) + row * slot_stride(control, slot)


@kernel
def finish(step, control, row, panel, value):
    """Add the residual, cap, and store one panel's 16 columns of a row."""
    column = 4 * load_i32(word(step, _COLUMNS) + 8 * panel)
    count = load_i32(word(step, _COLUMNS) + 8 * panel + 4)
    residual = word(step, _RESIDUAL)
    if residual >= 0:
        value = value + load(_row_of(control, residual, row) + column)
    cap = number(step, _SOFTCAP)
    if cap != 0:
        value = splat(cap) * tanh(value / splat(cap))
    out = _row_of(control, word(step, _OUTPUT), row) + column
    if count == 16:
        store(out, value)
    else:
        store_first(out, value, count)


@kernel
def with_bias(address, panel, value):
    """Add a panel's 16 biases, if there are any."""
    if address != 0:
        return value + load(address + 64 * panel)
    return value


def vector_product(kind: str, activation: int, gated: int) -> Callable[..., None]:
    """Product of few rows; `kind` as in `panel_dot`. Scratch: `VECTOR_ROWS` prepared rows and one float row."""

    def vector_product(step: Any, thread: Any, threads: Any, control: Any) -> None:
        first = first_row(step, control)
        last = last_row(control)
        room = scratch(control, thread)
        rows = room + (word(step, _K) + 63) // 64 * 256
        row_bytes = word(step, _ROW_BYTES)
        if word(step, _FRESH) != 0:
            for row in range(first, last):
                _prepare(step, control, row, rows + (row - first) * row_bytes, room)
        panels = word(step, _PANELS)
        units = word(step, _UNITS)
        for panel in range(panels * thread // threads, panels * (thread + 1) // threads):
            weights = word(step, _WEIGHTS) + panel * word(step, _PANEL_STRIDE)
            for row in range(first, last):
                x = rows + (row - first) * row_bytes
                value = with_bias(word(step, _BIAS), panel, panel_dot(kind, weights, x, units))
                value = activate(activation, value)
                if gated:
                    up = panel_dot(kind, weights + word(step, _PANEL_BYTES), x, units)
                    value = value * with_bias(word(step, _UP_BIAS), panel, up)
                finish(step, control, row, panel, value)

    return vector_product


def prepare(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Prepare all rows of a product into its shared buffer."""
    first = first_row(step, control)
    count = last_row(control) - first
    room = scratch(control, thread)
    for row in range(first + count * thread // threads, first + count * (thread + 1) // threads):
        _prepare(
            step,
            control,
            row,
            slot_address(control, word(step, _PREPARED)) + (row - first) * word(step, _ROW_BYTES),
            room,
        )


@kernel
def _finish_tile(step, control, first, row, last, panel, count, room, stride, activation, gated):
    """Store the rows of one tile; `panel` counts matrices' panels, so gates and ups alternate if `gated`."""
    for m in range(min(last - row, stride)):
        here = room + m * 64 * count
        if gated != 0:
            for pair in range(count // 2):
                column = panel // 2 + pair
                value = activate(activation, with_bias(word(step, _BIAS), column, load(here + 128 * pair)))
                up = with_bias(word(step, _UP_BIAS), column, load(here + 128 * pair + 64))
                finish(step, control, first + row + m, column, value * up)
        else:
            for p in range(count):
                value = activate(activation, with_bias(word(step, _BIAS), panel + p, load(here + 64 * p)))
                finish(step, control, first + row + m, panel + p, value)


@kernel
def _fetch_tile(step, control, first, row, last, panel, count, stride, gated):
    """Ask for the lines that `_finish_tile` will write: they come while the tile is multiplied."""
    output = word(step, _OUTPUT)
    shift = 1 if gated != 0 else 0
    for m in range(min(last - row, stride)):
        out = _row_of(control, output, first + row + m)
        for p in range(panel >> shift, (panel + count) >> shift):
            fetch_to_write(out + 4 * load_i32(word(step, _COLUMNS) + 8 * p))


def _opened_unit(zero: int) -> int:
    """Bytes that 64 k of a panel take when it is opened."""
    return 64 * 64 if zero == OPENED else 2 * byte_block_bytes(zero)


def tile_product(kind: str, activation: int, gated: int, zero: int, rows: int, wide: int) -> Callable[..., None]:
    """Product of many rows in tiles of `rows` × `wide` sums.

    `zero` ≥ 0: integer tiles on byte panels; `FLOATS`: float tiles on float panels; `OPENED`: float tiles on integer
    panels that are opened to float32; `BRAIN`: tiles of bfloat16 with bfloat16.

    Scratch: one opened group of panels and one tile of results.
    """
    name = kind.partition(":")[0]
    group = max(wide, 2) if gated else wide
    k_stride = 32 if name == "float16" else 64
    storage = "float32" if zero == OPENED else name
    opens = int(zero >= 0 or zero == OPENED)
    unit = 64 if opens else 8
    opened_unit = _opened_unit(zero)

    def tile_product(step: Any, thread: Any, threads: Any, control: Any) -> None:
        first = first_row(step, control)
        count = last_row(control) - first
        panels = word(step, _PANELS) * (2 if gated else 1)
        groups = (panels + group - 1) // group
        tiles = (count + rows - 1) // rows
        units = word(step, _UNITS)
        k = units * unit
        room = scratch(control, thread)
        opened = room + rows * group * 64
        stride = word(step, _PANEL_BYTES)
        prepared = slot_address(control, word(step, _PREPARED))
        # All tiles of a group of panels follow each other, so that a thread opens each of its groups once.
        tile = groups * tiles * thread // threads
        end = groups * tiles * (thread + 1) // threads
        while tile < end:
            panel = tile // tiles * group
            here = min(group, panels - panel)
            source = word(step, _WEIGHTS) + panel * stride
            if opens != 0:
                for p in range(here):
                    if zero == OPENED:
                        unpack_floats(name, source + p * stride, opened + p * units * opened_unit, units)
                    else:
                        unpack_bytes(name, source + p * stride, opened + p * units * opened_unit, units)
                source = opened
            step_bytes = units * opened_unit if opens != 0 else stride
            last = min(tile // tiles * tiles + tiles, end)
            for row in range(tile % tiles * rows, (tile % tiles + last - tile) * rows, rows):
                x = prepared + row * word(step, _ROW_BYTES)
                x_stride = word(step, _ROW_BYTES)
                _fetch_tile(step, control, first, row, count, panel, here, rows, gated)
                if zero >= 0:
                    integer_tiles(zero, rows, wide, source, step_bytes, here, x, x_stride, k, room, 64 * here)
                elif zero == BRAIN:
                    brain_tiles(rows, wide, source, step_bytes, here, x, x_stride, k, room, 64 * here)
                else:
                    float_tiles(
                        storage, rows, wide, source, k_stride, step_bytes, here, x, x_stride, k, room, 64 * here
                    )
                _finish_tile(step, control, first, row, count, panel, here, room, rows, activation, gated)
            tile = last

    return tile_product


def vector_scratch(k: int, row_bytes: int) -> int:
    """Bytes of scratch that `vector_product` needs."""
    return (k + 63) // 64 * 256 + VECTOR_ROWS * row_bytes


def tile_scratch(k: int, zero: int, rows: int, wide: int) -> int:
    """Bytes of scratch that `tile_product` needs (and `prepare`, which needs one float row)."""
    units = (k + 63) // 64
    opened = units * _opened_unit(zero) if zero >= 0 or zero == OPENED else 0
    return max((rows * 64 + opened) * max(wide, 2), units * 256)
