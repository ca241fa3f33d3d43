"""Run a step for the rows of each expert, with a control block in which the expert's pairs are all rows."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import call_operation, load_i32, load_i64, store_i64
from volumetric.devices.cpu.kernels.step_words import (
    CONTROL_WORDS,
    ROWS_WORD,
    SCRATCH_BYTES_WORD,
    SCRATCH_WORD,
    SLOTS_WORD,
    STEP_WORDS,
    TAIL_ROWS_WORD,
    scratch,
    slot_address,
    word,
)

INPUT, PREPARED, OUTPUT = range(3)
"""Slots of the steps it runs: indices of a separate table, which `_enter_expert` writes."""

EXPERT_BLOCK_BYTES = 8 * CONTROL_WORDS + 64
"""Scratch of `each_expert`, before the scratch of the steps it runs: the block and the table."""

EACH_EXPERT_ARGUMENTS = (
    "first",
    "count",
    "starts",
    "experts",
    "input",
    "input_bytes",
    "prepared",
    "prepared_bytes",
    "output",
    "output_bytes",
    "few",
    "few_rows",
)
"""Address and number of the steps; each is for `experts` consecutive experts. Then the slots of values with so many
bytes per pair. For up to `few_rows` rows the operation `few` replaces that of the step."""


@kernel
def _enter_expert(step, control, block, first, rows):
    """Make `block` that of a call with `rows` rows, from pair `first` on."""
    table = load_i64(block + 8 * SLOTS_WORD)
    for i in range(3):
        size = word(step, 5 + 2 * i)
        store_i64(table + 16 * i, slot_address(control, word(step, 4 + 2 * i)) + first * size)
        store_i64(table + 16 * i + 8, size)
    store_i64(block + 8 * ROWS_WORD, rows)
    store_i64(block + 8 * TAIL_ROWS_WORD, rows)


def each_expert(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Run a step for the rows of each expert that has any. All threads share each step, as its operation does."""
    block = scratch(control, thread)
    for i in range(CONTROL_WORDS):
        store_i64(block + 8 * i, load_i64(control + 8 * i))
    store_i64(block + 8 * SLOTS_WORD, block + 8 * CONTROL_WORDS)
    store_i64(block + 8 * SCRATCH_WORD, block + EXPERT_BLOCK_BYTES)
    store_i64(block + 8 * SCRATCH_BYTES_WORD, 0)
    starts = slot_address(control, word(step, 2))
    size = 4 * word(step, 3)
    for i in range(word(step, 1)):
        first = load_i32(starts + i * size)
        rows = load_i32(starts + (i + 1) * size) - first
        if rows > 0:
            _enter_expert(step, control, block, first, rows)
            inner = word(step, 0) + 8 * STEP_WORDS * i
            operation = word(step, 10) if rows <= word(step, 11) else load_i64(inner)
            call_operation(operation, inner, thread, threads, block)
