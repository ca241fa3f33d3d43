"""Memory layout of a step table and a control block: the contract between the runtime and the operations.

A step is `STEP_WORDS` int64; word 0 is the address of the operation, word 1 whether a barrier follows it, word 2
whether it belongs to the plan's tail, which runs only on requested rows. The rest are the operation's arguments, listed
at its definition. Floats are passed as their float32 bits.

The control block is rewritten for each call. Values are *slots*: a pair (address, bytes from row to row) in the
slot table, so that a step does not change when a value moves.
"""

from __future__ import annotations

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import bits_float, load_i64

STEP_WORDS = 32
OPERATION_WORD, BARRIER_WORD, TAIL_WORD, FIRST_ARGUMENT = range(4)

CONTROL_WORDS = 24
"""Whole cache lines."""
(
    ROWS_WORD,  # one past the last row of this call, or of a single sequence in its block
    FIRST_WORD,  # its first row
    TAIL_ROWS_WORD,  # rows of the tail
    SLOTS_WORD,  # address of the slot table
    SCRATCH_WORD,  # address of the threads' scratch
    SCRATCH_BYTES_WORD,  # scratch of one thread
    POSITIONS_WORD,  # address of the position of each row, int64
    WANTED_WORD,  # address of the row that each row of the tail is, int64, ascending
    TAIL_POSITIONS_WORD,  # address of the position of each row of the tail, int64
    PIECES_WORD,  # address of the records of sequences, `SEQUENCE_WORDS` each
    COUNT_WORD,  # number of sequences
    BEFORE_WORD,  # tokens in the sequence's state before the call, minus its first row: position of row 0
    STATES_WORD,  # address of its state table: (keys, values, capacity, first) for each cache
    OPENED_WORD,  # address of the bfloat16 copy of its cache
    PLACES_WORD,  # positions that the copy has room for
    STOP_WORD,  # not 0: a repeated call ends here
    FLUSH_WORD,  # not 0: subnormal numbers count as 0
) = range(17)

SEQUENCE_WORDS = 8
"""(first row, one past the last, before, states, opened, places): the fields specific to a sequence's block."""

STATE_WORDS = 4


@kernel
def word(step, index):
    """Argument `index` of a step."""
    return load_i64(step + 8 * (3 + index))


@kernel
def number(step, index):
    """Argument `index` of a step, a float32."""
    return bits_float(load_i64(step + 8 * (3 + index)))


@kernel
def last_row(step, control):
    """One past the last row that the step must compute; the first is row 0, except in a block of one sequence."""
    if load_i64(step + 8 * 2) != 0:
        return load_i64(control + 8 * 2)
    return load_i64(control)


@kernel
def first_row(control):
    """First row of a sequence."""
    return load_i64(control + 8)


@kernel
def row_position(step, control, row):
    """Tokens in the sequence of a row before it."""
    if load_i64(step + 8 * 2) != 0:
        return load_i64(load_i64(control + 8 * 8) + 8 * row)
    return load_i64(load_i64(control + 8 * 6) + 8 * row)


@kernel
def first_row_position(stateful, control):
    """Position of row 0 of the call, if it belonged to the sequence; for `stateful` 0 its own rows count from 0."""
    if stateful != 0:
        return load_i64(control + 8 * 11)
    return -load_i64(control + 8)


@kernel
def slot_address(control, slot):
    """Address of row 0 of a value."""
    return load_i64(load_i64(control + 8 * 3) + 16 * slot)


@kernel
def slot_stride(control, slot):
    """Bytes from row to row of a value."""
    return load_i64(load_i64(control + 8 * 3) + 16 * slot + 8)


@kernel
def state_word(control, state, index):
    """Word `index` (0 keys, 1 values, 2 capacity in rows, 3 position of the first row) of a cache."""
    return load_i64(load_i64(control + 8 * 12) + 8 * (STATE_WORDS * state + index))


@kernel
def unpacked_cache(control):
    """Address of the bfloat16 copy of the sequence's cache, and the positions it has room for."""
    return load_i64(control + 8 * 13), load_i64(control + 8 * 14)


@kernel
def scratch(control, thread):
    """Scratch of one thread."""
    return load_i64(control + 8 * 4) + thread * load_i64(control + 8 * 5)
