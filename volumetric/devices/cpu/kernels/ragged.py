"""Steps that depend on a sequence, run for the rows that each sequence adds in a call.

All other steps depend only on their rows, so they run once for the rows of all sequences.
"""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import call_operation, load_i64, store_i64
from volumetric.devices.cpu.kernels.step_words import (
    BEFORE_WORD,
    CONTROL_WORDS,
    COUNT_WORD,
    FIRST_WORD,
    OPENED_WORD,
    PIECES_WORD,
    PLACES_WORD,
    ROWS_WORD,
    SCRATCH_BYTES_WORD,
    SCRATCH_WORD,
    SEQUENCE_WORDS,
    STATES_WORD,
    scratch,
    word,
)

FEW_ROWS = 4
"""Rows of a sequence up to which the forms for few rows are used; results are the same."""

BLOCK_BYTES = 8 * CONTROL_WORDS
"""Scratch of `each_sequence`, before the scratch of the steps it runs."""

EACH_SEQUENCE_ARGUMENTS = ("few", "many")
"""Addresses of the step for sequences with few rows and for others; 0 = nothing to do."""


@kernel
def _enter_sequence(block, piece):
    """Make `block` the control block of a call that contains only sequence `piece`."""
    store_i64(block + 8 * FIRST_WORD, load_i64(piece))
    store_i64(block + 8 * ROWS_WORD, load_i64(piece + 8))
    store_i64(block + 8 * BEFORE_WORD, load_i64(piece + 16))
    store_i64(block + 8 * STATES_WORD, load_i64(piece + 24))
    store_i64(block + 8 * OPENED_WORD, load_i64(piece + 32))
    store_i64(block + 8 * PLACES_WORD, load_i64(piece + 40))


def each_sequence(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Run another step for each sequence: with all threads for many rows, else with sequences divided among threads.

    Few rows have one share of work per thread, as when alone; a thread also does the shares of others.
    """
    few = word(step, 0)
    many = word(step, 1)
    block = scratch(control, thread)
    for i in range(CONTROL_WORDS):
        store_i64(block + 8 * i, load_i64(control + 8 * i))
    store_i64(block + 8 * SCRATCH_WORD, block + BLOCK_BYTES)
    store_i64(block + 8 * SCRATCH_BYTES_WORD, 0)
    pieces = load_i64(control + 8 * PIECES_WORD)
    end = pieces + 8 * SEQUENCE_WORDS * load_i64(control + 8 * COUNT_WORD)
    small = 0
    for piece in range(pieces, end, 8 * SEQUENCE_WORDS):
        if load_i64(piece + 8) - load_i64(piece) <= FEW_ROWS:
            small += 1
        elif many != 0:
            _enter_sequence(block, piece)
            call_operation(load_i64(many), many, thread, threads, block)
    if few == 0:
        return
    share = -small * thread  # of the first share that is this thread's
    for piece in range(pieces, end, 8 * SEQUENCE_WORDS):
        if load_i64(piece + 8) - load_i64(piece) <= FEW_ROWS:
            if share + threads > 0 and share < small:
                _enter_sequence(block, piece)
                for i in range(max(-share, 0), min(threads, small - share)):
                    call_operation(load_i64(few), few, i, threads, block)
            share += threads
