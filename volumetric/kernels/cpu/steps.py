"""What a step table and a control block look like in memory: the contract between the runtime and the operations.

A step is `STEP_WORDS` int64; word 0 is the address of the operation, word 1 tells whether all threads wait for each
other after it, word 2 whether it belongs to the plan's tail. The rest are the operation's arguments, listed where the
operation is defined. Floats travel as their float32 bits.

The control block is written anew for each call. Values are *slots*: a pair (address, bytes from row to row) in the
slot table, so that a step does not change when a value moves.
"""

from __future__ import annotations

from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.memory import bits_float, load_i64

STEP_WORDS = 32
OPERATION_WORD, BARRIER_WORD, TAIL_WORD, FIRST_ARGUMENT = range(4)

CONTROL_WORDS = 16
(
    ROWS_WORD,  # rows of this call
    POSITION_WORD,  # tokens that the state held before
    TAIL_MODE_WORD,  # one of the TAIL_* values
    SLOTS_WORD,  # address of the slot table
    STATES_WORD,  # address of the state table: (keys, values, capacity) for each cache
    SCRATCH_WORD,  # address of the threads' scratch
    SCRATCH_BYTES_WORD,  # scratch of one thread
) = range(7)

TAIL_ALL, TAIL_LAST, TAIL_NONE = range(3)
"""Tail steps run on all rows, on the last row, or not at all."""

STATE_WORDS = 3


@kernel
def word(step, index):
    """Argument `index` of a step."""
    return load_i64(step + 8 * (3 + index))


@kernel
def number(step, index):
    """Argument `index` of a step, a float32."""
    return bits_float(load_i64(step + 8 * (3 + index)))


@kernel
def first_row(step, control):
    """First row that the step is to compute."""
    if load_i64(step + 8 * 2) != 0 and load_i64(control + 8 * 2) != 0:
        rows = load_i64(control)
        return rows - 1 if load_i64(control + 8 * 2) == 1 else rows
    return 0


@kernel
def last_row(control):
    """One past the last row."""
    return load_i64(control)


@kernel
def position(control):
    """Tokens held before this call."""
    return load_i64(control + 8)


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
    """Word `index` (0 keys, 1 values, 2 capacity in tokens) of a cache."""
    return load_i64(load_i64(control + 8 * 4) + 8 * (3 * state + index))


@kernel
def scratch(control, thread):
    """Scratch of one thread."""
    return load_i64(control + 8 * 5) + thread * load_i64(control + 8 * 6)
