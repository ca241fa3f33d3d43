"""Recurrent cells on the rows of a call, time step by time step, for all its sequences together.

Hidden states are stored side by side during a call, one row per sequence, so the product with them reads its weights
once for all sequences. `load_states` copies the states there, `store_states` copies them back; between the two the
executor repeats the product and `cell` for each time step. Equations: `layers.recurrent`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volumetric.devices.cpu.kernels.formula_kernels import kernel_by_code, statements_of
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.maths import WORDS
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i64, store_f32
from volumetric.devices.cpu.kernels.simd import load, store_first
from volumetric.devices.cpu.kernels.step_words import (
    COUNT_WORD,
    PIECES_WORD,
    SEQUENCE_WORDS,
    STATE_WORDS,
    first_row,
    slot_address,
    slot_stride,
    word,
)
from volumetric.formula import cells

CELLS = tuple(name for name, of in cells.CELLS.items() if len(of.after) <= 2)
"""Index = the code of a cell."""

STATE_ARGUMENTS = ("state", "slot", "size")
"""Number of the state in a sequence's state table, slot of the rows of all sequences, numbers in a state."""


@kernel
def sequence_address(control, number):
    """Address of the record of sequence `number`."""
    return load_i64(control + 8 * PIECES_WORD) + 8 * SEQUENCE_WORDS * number


@kernel
def state_address(control, number, state):
    """Address of a state of sequence `number`."""
    return load_i64(load_i64(sequence_address(control, number) + 24) + 8 * STATE_WORDS * state)


def load_states(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy a state of each sequence to its row."""
    for i in range(thread, load_i64(control + 8 * COUNT_WORD), threads):
        source = state_address(control, i, word(step, 0))
        out = slot_address(control, word(step, 1)) + i * slot_stride(control, word(step, 1))
        for j in range(word(step, 2)):
            store_f32(out + 4 * j, load_f32(source + 4 * j))


def store_states(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy each sequence's row to its state."""
    for i in range(thread, load_i64(control + 8 * COUNT_WORD), threads):
        source = slot_address(control, word(step, 1)) + i * slot_stride(control, word(step, 1))
        out = state_address(control, i, word(step, 0))
        for j in range(word(step, 2)):
            store_f32(out + 4 * j, load_f32(source + 4 * j))


CELL_ARGUMENTS = ("from_x", "from_h", "y", "h", "c", "size")
"""Slots of the pre-activations by row and by sequence, the output by row, h and c (lstm) by sequence; hidden units."""


def _step(of: cells.CellFormula) -> list[str]:
    loads = {f"x{i}": f"load(x + {i} * block)" for i in range(of.blocks)}
    loads |= {f"r{i}": f"load(h + {i} * block)" for i in range(of.blocks)}
    lines, texts = statements_of(
        of.after.values(), loads | dict(zip(of.after, ("load(held)", "load(kept)"), strict=False))
    )
    lines += [f"after{i} = {text}" for i, text in enumerate(texts)]
    stores = [f"store_first({place}, after{i}, lanes)" for i, place in enumerate(("held", "kept")[: len(texts)])]
    return [*lines, *stores, "store_first(out, after0, lanes)"]


step_of = kernel_by_code(
    __name__,
    "step_of",
    "x h held kept out block lanes",
    (_step(cells.CELLS[name]) for name in CELLS),
    (*WORDS, load, store_first),
)
"""(code, …) → one step of up to 16 units: addresses of pre-activations, h, c and the output, and bytes of a block."""


def cell(code: int) -> Callable[..., None]:
    """One time step of cell number `code` of `CELLS`; the step's number is the first row of the control block."""

    def cell(step: Any, thread: Any, threads: Any, control: Any) -> None:
        size = word(step, 5)
        parts = (size + 15) // 16
        count = load_i64(control + 8 * COUNT_WORD) * parts
        for share in range(count * thread // threads, count * (thread + 1) // threads):
            number = share // parts
            row = load_i64(sequence_address(control, number)) + first_row(control)
            if row >= load_i64(sequence_address(control, number) + 8):
                continue
            at = share % parts * 64
            x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0)) + at
            h = slot_address(control, word(step, 1)) + number * slot_stride(control, word(step, 1)) + at
            out = slot_address(control, word(step, 2)) + row * slot_stride(control, word(step, 2)) + at
            c = slot_address(control, word(step, 3)) + number * slot_stride(control, word(step, 3)) + at
            c_out = slot_address(control, word(step, 4)) + number * slot_stride(control, word(step, 4)) + at
            step_of(code, x, h, c, c_out, out, 4 * size, min(size - at // 4, 16))

    return cell
