"""The product steps: ``act(norm(x) Wᵀ + b)``, gated or not, plus a residual, capped.

Three forms have the same arguments and the same bits. `vector_product` serves up to `VECTOR_ROWS` rows: each thread
prepares the rows for itself (cheaper than a barrier: 0.3 µs for 576 numbers) and multiplies packed panels. For more
rows a `prepare` step prepares them for all threads. Then `rows_product` multiplies packed integer panels, up to
`DIRECT_ROWS` rows, and `tile_product` unpacks a group of panels into its thread's scratch and runs over the rows.
Unpacking costs as much as 40 rows gain from it: on a Xeon with VNNI, tiles of 4 rows reach 350-410 GOP/s on packed
panels and tiles of 6 × 2 reach 460-490 on unpacked ones. If the processor has matrix registers, `amx.product` replaces
both for more than ten rows.

The division of work depends on the number of threads and of rows; every result is one sum with one order (see `forms`),
so the bits do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.maths import activate, tanh
from volumetric.devices.cpu.kernels.matmul_dispatch import AHEAD, some_rows
from volumetric.devices.cpu.kernels.memory_access import fetch_to_read, fetch_to_write, load_i32
from volumetric.devices.cpu.kernels.panel_microkernels import byte_block_bytes
from volumetric.devices.cpu.kernels.panels import BY_NAME
from volumetric.devices.cpu.kernels.prepare import prepare_activations
from volumetric.devices.cpu.kernels.simd import load, splat, store, store_first, where_less
from volumetric.devices.cpu.kernels.step_words import last_row, number, scratch, slot_address, slot_stride, word
from volumetric.devices.cpu.kernels.unpack import unpack_bytes, unpack_floats

VECTOR_ROWS = 4
"""Rows that each thread prepares for itself, and rows of a tile on packed panels."""

PACKED_WIDE = 4
"""Integer panels that `vector_product` takes at once."""

DIRECT_ROWS = 40
"""Rows up to which integer panels are multiplied packed; for more rows, unpacking them first is faster."""

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
    "panel_bytes",  # gated: offset of the up panel from its gate panel
    "prepared",  # slot of the shared prepared rows, for tiles
    "row_bytes",  # bytes of a prepared row
    "rounding",  # of the prepared rows, a number of `ROUNDINGS`
    "fresh",  # vector form: rows must be prepared (an earlier step did not do it)
    "limit",  # of a bounded gate, see `gated_value`
    "up_offset",
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
    _LIMIT,
    _UP_OFFSET,
) = range(23)

UNGATED, GATED, BOUNDED = range(3)
"""Whether a product's panels are pairs of gate and up, and whether these have a limit."""


@kernel
def _prepare(step, control, row, out, room):
    prepare_activations(
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


def gating_code(limit: float | None) -> int:
    """Return the gating mode of a product of two matrices with this limit."""
    return GATED if limit is None else BOUNDED


@kernel
def gated_value(activation, gated, gate, up, limit, offset):
    """``act(gate) · up``; bounded: ``act(min(gate, limit)) · (clamp(up, -limit, limit) + offset)``. NaN stays."""
    if gated == BOUNDED:
        high = splat(limit)
        low = splat(-limit)
        gate = where_less(high, gate, high, gate)
        up = where_less(high, up, high, where_less(up, low, low, up)) + splat(offset)
    return activate(activation, gate) * up


def vector_product(kind: str, activation: int, gated: int, wide: int) -> Callable[..., None]:
    """Product of few rows, `wide` panels at a time; `kind` as in `forms`.

    Scratch: one float row, `VECTOR_ROWS` prepared rows, and the results of as many rows × `wide` panels.
    """
    middle, few = min(4, VECTOR_ROWS), min(2, VECTOR_ROWS)
    most = VECTOR_ROWS
    group = max(wide, 2) if gated else wide
    each = 2 if gated else 1
    several = wide
    if BY_NAME[kind.partition(":")[0]].is_coded:
        kind, several = kind + AHEAD, 1  # several rows have sums enough with one panel, and half the code

    def vector_product(step: Any, thread: Any, threads: Any, control: Any) -> None:
        count = last_row(step, control)
        room = scratch(control, thread)
        rows = room + (word(step, _K) + 63) // 64 * 256
        row_bytes = word(step, _ROW_BYTES)
        results = rows + most * row_bytes
        if word(step, _FRESH) != 0:
            for row in range(count):
                _prepare(step, control, row, rows + row * row_bytes, room)
        panels = word(step, _PANELS)
        units = word(step, _UNITS)
        stride = word(step, _PANEL_BYTES)
        end = panels * (thread + 1) // threads * each
        for panel in range(panels * thread // threads * each, end, group):
            here = min(group, end - panel)
            source = word(step, _WEIGHTS) + panel * stride
            some_rows(
                kind, most, middle, few, several, wide, source, stride, here, rows, row_bytes, count, units, results
            )
            finish_tile(step, control, 0, count, panel, here, results, most, activation, gated)

    return vector_product


def rows_product(kind: str, activation: int, gated: int) -> Callable[..., None]:
    """Product of rows prepared by a `prepare` step with packed integer panels. Scratch: results of one tile."""
    most, few = VECTOR_ROWS, min(2, VECTOR_ROWS)
    each = 2 if gated else 1

    def rows_product(step: Any, thread: Any, threads: Any, control: Any) -> None:
        count = last_row(step, control)
        room = scratch(control, thread)
        prepared = slot_address(control, word(step, _PREPARED))
        row_bytes = word(step, _ROW_BYTES)
        panels = word(step, _PANELS)
        units = word(step, _UNITS)
        stride = word(step, _PANEL_BYTES)
        lines = each * stride // 64
        for panel in range(panels * thread // threads * each, panels * (thread + 1) // threads * each, each):
            source = word(step, _WEIGHTS) + panel * stride
            for row in range(0, count, most):
                # Prefetch the next panel during this multiplication; it would be waited for otherwise.
                for line in range(lines * row // count, lines * min(row + most, count) // count):
                    fetch_to_read(source + each * stride + 64 * line)
                x = prepared + row * row_bytes
                some_rows(kind, most, most, few, 1, 1, source, stride, each, x, row_bytes, count - row, units, room)
                finish_tile(step, control, row, count, panel, each, room, most, activation, gated)

    return rows_product


def prepare(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Prepare all rows of a product into its shared buffer."""
    count = last_row(step, control)
    room = scratch(control, thread)
    prepared = slot_address(control, word(step, _PREPARED))
    for row in range(count * thread // threads, count * (thread + 1) // threads):
        _prepare(step, control, row, prepared + row * word(step, _ROW_BYTES), room)


@kernel
def finish_tile(step, control, row, last, panel, count, room, most, activation, gated):
    """Store the rows of one tile; `panel` counts matrices' panels, so gates and ups alternate if `gated`."""
    for m in range(min(last - row, most)):
        here = room + m * 64 * count
        if gated != 0:
            for pair in range(count // 2):
                column = panel // 2 + pair
                gate = with_bias(word(step, _BIAS), column, load(here + 128 * pair))
                up = with_bias(word(step, _UP_BIAS), column, load(here + 128 * pair + 64))
                limit, offset = number(step, _LIMIT), number(step, _UP_OFFSET)
                finish(step, control, row + m, column, gated_value(activation, gated, gate, up, limit, offset))
        else:
            for p in range(count):
                value = activate(activation, with_bias(word(step, _BIAS), panel + p, load(here + 64 * p)))
                finish(step, control, row + m, panel + p, value)


@kernel
def fetch_tile(step, control, row, last, panel, count, most, gated):
    """Prefetch the lines that `finish_tile` will read and write."""
    residual = word(step, _RESIDUAL)
    shift = 1 if gated != 0 else 0
    for m in range(min(last - row, most)):
        out = _row_of(control, word(step, _OUTPUT), row + m)
        source = _row_of(control, residual, row + m) if residual >= 0 else 0
        for p in range(panel >> shift, (panel + count) >> shift):
            column = 4 * load_i32(word(step, _COLUMNS) + 8 * p)
            fetch_to_write(out + column)
            if source != 0:
                fetch_to_read(source + column)


def tile_product(kind: str, activation: int, gated: int, rows: int, wide: int) -> Callable[..., None]:
    """Product of many rows in tiles of `rows` × `wide` sums; `kind` as in `forms`, of packed panels.

    Scratch: one unpacked group of panels and one tile of results.
    """
    name, form, unit_bytes = _unpacked_kind(kind)
    opens = int(unit_bytes > 0)
    bytes_ = int(form.startswith("bytes"))
    group = max(wide, 2) if gated else wide
    smaller = 8 if opens and not bytes_ else 1  # units of the unpacked form per packed unit
    middle, few = min(4, rows), min(2, rows)

    def tile_product(step: Any, thread: Any, threads: Any, control: Any) -> None:
        count = last_row(step, control)
        panels = word(step, _PANELS) * (2 if gated else 1)
        groups = (panels + group - 1) // group
        tiles = (count + rows - 1) // rows
        units = word(step, _UNITS)
        length = units * smaller
        room = scratch(control, thread)
        opened = room + rows * group * 64
        stride = word(step, _PANEL_BYTES)
        prepared = slot_address(control, word(step, _PREPARED))
        x_stride = word(step, _ROW_BYTES)
        # All tiles of a group of panels follow each other, so that a thread unpacks each of its groups once.
        tile = groups * tiles * thread // threads
        end = groups * tiles * (thread + 1) // threads
        while tile < end:
            panel = tile // tiles * group
            here = min(group, panels - panel)
            source = word(step, _WEIGHTS) + panel * stride
            step_bytes = stride
            if opens:
                step_bytes = units * unit_bytes
                for p in range(here):
                    if bytes_:
                        unpack_bytes(name, source + p * stride, opened + p * step_bytes, units)
                    else:
                        unpack_floats(name, source + p * stride, opened + p * step_bytes, units)
                source = opened
            last = min(tile // tiles * tiles + tiles, end)
            for row in range(tile % tiles * rows, (tile % tiles + last - tile) * rows, rows):
                x = prepared + row * x_stride
                fetch_tile(step, control, row, count, panel, here, rows, gated)
                left = count - row
                some_rows(
                    form, rows, middle, few, wide, wide, source, step_bytes, here, x, x_stride, left, length, room
                )
                finish_tile(step, control, row, count, panel, here, room, rows, activation, gated)
            tile = last

    return tile_product


def _unpacked_kind(kind: str) -> tuple[str, str, int]:
    """Format of a kind, the kind its panels are unpacked to, and the bytes of an unpacked unit; 0 = not unpacked."""
    name, _, how = kind.partition(":")
    form = BY_NAME[name]
    if not form.is_coded:
        return name, kind, 0
    if how == "exact":
        return name, "float32", 64 * 64
    return name, f"bytes:{form.zero}:{form.group}", 2 * byte_block_bytes(form.zero, form.group)


def vector_scratch(k: int, row_bytes: int, wide: int) -> int:
    """Bytes of scratch that `vector_product` needs."""
    return -(-k // 64) * 256 + VECTOR_ROWS * (row_bytes + 64 * max(wide, 2))


def tile_scratch(k: int, kind: str, rows: int, wide: int) -> int:
    """Bytes of scratch that `tile_product` needs (and `prepare`, which needs one float row)."""
    units = (k + 63) // 64
    return max((rows * 64 + units * _unpacked_kind(kind)[2]) * max(wide, 2), units * 256)
