"""Steps for a batch: one new row for each of several sequences, at positions and over caches of their own.

Products read a panel once for all rows (`rows_product`). What depends on a sequence (angles, positions, caches) runs as
the operations of a single row do, once for each row (`each_row`): every row has a control block in which it is row 0
of its own call. Both give a row the bits that it has when it is decoded alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.maths import activate
from volumetric.kernels.cpu.matvec import panel_dots
from volumetric.kernels.cpu.memory import call_operation, load_i64
from volumetric.kernels.cpu.products import PRODUCT_ARGUMENTS, finish, with_bias
from volumetric.kernels.cpu.simd import load
from volumetric.kernels.cpu.steps import CONTROL_WORDS, last_row, scratch, slot_address, word

(_WEIGHTS, _PANEL_STRIDE, _PANELS, _UNITS, _BIAS, _UP_BIAS, _PANEL_BYTES, _PREPARED, _ROW_BYTES) = (
    PRODUCT_ARGUMENTS.index(name)
    for name in (
        "weights",
        "panel_stride",
        "panels",
        "units",
        "bias",
        "up_bias",
        "panel_bytes",
        "prepared",
        "row_bytes",
    )
)

BLOCKS_WORD = 7
"""Word of the control block of a batch: address of its rows' blocks, ``[threads, rows, CONTROL_WORDS]``."""

TOGETHER = 4
"""Rows that share a panel's loads: four sums each, and what opens the weights, fill 32 registers."""

ROWS_SCRATCH = 2 * 64 * TOGETHER
"""Bytes of scratch of `rows_product`."""

EACH_ROW_ARGUMENTS = ("inner",)
"""Address of the step to run for every row."""


def each_row(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Run another step for every row of the batch by itself; each of its shares of work is done by one thread."""
    inner = word(step, 0)
    rows = last_row(control)
    shares = rows * threads
    blocks = load_i64(control + 8 * BLOCKS_WORD) + thread * rows * (8 * CONTROL_WORDS)
    for share in range(shares * thread // threads, shares * (thread + 1) // threads):
        block = blocks + share // threads * (8 * CONTROL_WORDS)
        call_operation(load_i64(inner), inner, share % threads, threads, block)


@kernel
def _finish_rows(step, control, first, count, panel, room, activation, gated):
    for m in range(count):
        value = activate(activation, with_bias(word(step, _BIAS), panel, load(room + 64 * m)))
        if gated != 0:
            value = value * with_bias(word(step, _UP_BIAS), panel, load(room + 64 * (TOGETHER + m)))
        finish(step, control, first + m, panel, value)


def rows_product(kind: str, activation: int, gated: int) -> Callable[..., None]:
    """Product of rows that a `prepare` step made ready; `kind` as in `panel_dot`, arguments as all products'."""

    def rows_product(step: Any, thread: Any, threads: Any, control: Any) -> None:
        rows = last_row(control)
        x = slot_address(control, word(step, _PREPARED))
        x_stride = word(step, _ROW_BYTES)
        panels = word(step, _PANELS)
        units = word(step, _UNITS)
        room = scratch(control, thread)
        for panel in range(panels * thread // threads, panels * (thread + 1) // threads):
            weights = word(step, _WEIGHTS) + panel * word(step, _PANEL_STRIDE)
            up = weights + word(step, _PANEL_BYTES)
            row = 0
            while row < rows:
                here = x + row * x_stride
                if rows - row >= TOGETHER:
                    panel_dots(kind, TOGETHER, weights, here, x_stride, units, room)
                    if gated:
                        panel_dots(kind, TOGETHER, up, here, x_stride, units, room + 64 * TOGETHER)
                    _finish_rows(step, control, row, TOGETHER, panel, room, activation, gated)
                    row += TOGETHER
                else:
                    panel_dots(kind, 1, weights, here, x_stride, units, room)
                    if gated:
                        panel_dots(kind, 1, up, here, x_stride, units, room + 64 * TOGETHER)
                    _finish_rows(step, control, row, 1, panel, room, activation, gated)
                    row += 1

    return rows_product
