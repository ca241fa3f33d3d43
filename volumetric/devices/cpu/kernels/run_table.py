"""Run a step table on several threads in lock step: barriers, the executor, and the workers' loop.

Every thread runs every step, on its share. A barrier is one counter that only grows: thread arrivals are counted, and
the k-th barrier is passed when k · threads have arrived. Workers spin between calls, because waking a sleeping thread
costs more than a token; after `idle` rounds without work they return, and the caller parks them.
"""

from __future__ import annotations

from volumetric.devices.cpu.kernels.denormals import flush_denormals, restore_denormals
from volumetric.devices.cpu.kernels.jit import entry, kernel
from volumetric.devices.cpu.kernels.memory_access import (
    atomic_add,
    call_operation,
    load_acquire,
    load_f32,
    load_i64,
    pause,
    store_i64,
    store_release,
)
from volumetric.devices.cpu.kernels.step_words import (
    BARRIER_WORD,
    CONTROL_WORDS,
    COUNT_WORD,
    FIRST_WORD,
    PIECES_WORD,
    ROWS_WORD,
    SCRATCH_BYTES_WORD,
    SCRATCH_WORD,
    SEQUENCE_WORDS,
    STEP_WORDS,
    STOP_WORD,
    TAIL_ROWS_WORD,
    last_row,
    scratch,
    slot_address,
    slot_stride,
    word,
)

CREW_WORDS = 64
CALL = 0  # call number · 65536 + number of threads: one word, so that it is read atomically
TABLE = 1  # address of its steps
STEPS = 2  # their number
CONTROL = 3  # address of its control block
QUIT = 4  # workers return at once
TIMES = 5  # number of runs of the steps, unless one of them requests a stop
ARRIVED = 16  # counters that several threads write are on separate cache lines
FINISHED = 32
THREADS_LIMIT = 65535

LOOP, GUARD, UNLESS = 1, 2, 3
"""Replace an operation's address in steps that run others. All have the address and number of those as arguments; a
loop runs them for each time step, a predicate if a column of weights (slot, column) is not 0 in all rows, and the last
kind if it is."""
LOOP_ARGUMENTS = ("first", "count")
GUARD_ARGUMENTS = ("first", "count", "weights", "column")

_STEP_BYTES, _BARRIER_BYTES = 8 * STEP_WORDS, 8 * BARRIER_WORD


@kernel
def _wait_for_counter(counter, target):
    """Wait until `counter` has reached `target`."""
    while load_acquire(counter) < target:
        pause()


@kernel
def _barrier(crew, threads, met):
    """Barrier of all threads; returns barriers · threads so far."""
    atomic_add(crew + 8 * ARRIVED, 1)
    _wait_for_counter(crew + 8 * ARRIVED, met + threads)
    return met + threads


@kernel
def _run_steps(crew, thread, threads, control, table, steps, met):
    """Run `steps` steps; returns barriers · threads so far."""
    for index in range(steps):
        step = table + index * _STEP_BYTES
        call_operation(load_i64(step), step, thread, threads, control)
        if threads > 1 and load_i64(step + _BARRIER_BYTES) != 0:
            met = _barrier(crew, threads, met)
    return met


@kernel
def _run_time_loop(crew, thread, threads, control, step, met):
    """Run the steps of a loop for each time step, on a row per sequence; the first row holds the step's number."""
    block = scratch(control, thread)
    for i in range(CONTROL_WORDS):
        store_i64(block + 8 * i, load_i64(control + 8 * i))
    store_i64(block + 8 * SCRATCH_WORD, block + 8 * CONTROL_WORDS)
    store_i64(block + 8 * SCRATCH_BYTES_WORD, 0)
    count = load_i64(control + 8 * COUNT_WORD)
    store_i64(block + 8 * ROWS_WORD, count)
    store_i64(block + 8 * TAIL_ROWS_WORD, count)
    longest = 0
    for i in range(count):
        piece = load_i64(control + 8 * PIECES_WORD) + 8 * SEQUENCE_WORDS * i
        longest = max(longest, load_i64(piece + 8) - load_i64(piece))
    for time in range(longest):
        store_i64(block + 8 * FIRST_WORD, time)
        met = _run_steps(crew, thread, threads, block, word(step, 0), word(step, 1), met)
    return met


@kernel
def _predicate_holds(step, control):
    """Whether a predicate's column of weights has a number other than 0."""
    slot = word(step, 2)
    for row in range(last_row(step, control)):
        if load_f32(slot_address(control, slot) + row * slot_stride(control, slot) + 4 * word(step, 3)) != 0:
            return True
    return False


@kernel
def _run_table(crew, thread, threads, control, table, steps, met):
    """Run a table; returns as `_run_steps`."""
    for index in range(steps):
        step = table + index * _STEP_BYTES
        code = load_i64(step)
        if code == LOOP:
            met = _run_time_loop(crew, thread, threads, control, step, met)
        elif code != GUARD and code != UNLESS:
            met = _run_steps(crew, thread, threads, control, step, 1, met)
        elif _predicate_holds(step, control) == (code == GUARD):
            met = _run_steps(crew, thread, threads, control, word(step, 0), word(step, 1), met)
        elif threads > 1 and load_i64(step + _BARRIER_BYTES) != 0:  # the next steps may overwrite the weights
            met = _barrier(crew, threads, met)
    return met


@kernel
def _run_repeated(crew, thread, threads):
    table = load_i64(crew + 8 * TABLE)
    steps = load_i64(crew + 8 * STEPS)
    control = load_i64(crew + 8 * CONTROL)
    mode = flush_denormals(control)
    met = 0
    for _ in range(load_i64(crew + 8 * TIMES)):
        met = _run_table(crew, thread, threads, control, table, steps, met)
        if load_i64(control + 8 * STOP_WORD) != 0:  # a barrier follows the step that writes it
            break
    restore_denormals(control, mode)


@entry
def run_single_threaded(table, steps, control, times):
    """Run the steps at address `table` on the calling thread: no barriers, no workers to wake."""
    mode = flush_denormals(control)
    for _ in range(times):
        _run_table(0, 0, 1, control, table, steps, 0)
        if load_i64(control + 8 * STOP_WORD) != 0:
            break
    restore_denormals(control, mode)


@entry
def publish_call(crew, table, steps, control, threads, times):
    """Announce a call; `run_as_leader` must follow. The last call is over, so no thread reads the words written here.

    The steps run `times` times; for more than once, a barrier must follow the last of them.
    """
    store_i64(crew + 8 * TABLE, table)
    store_i64(crew + 8 * STEPS, steps)
    store_i64(crew + 8 * CONTROL, control)
    store_i64(crew + 8 * TIMES, times)
    store_i64(crew + 8 * ARRIVED, 0)
    store_i64(crew + 8 * FINISHED, 0)
    number = load_i64(crew + 8 * CALL) // 65536
    store_release(crew + 8 * CALL, (number + 1) * 65536 + threads)


@entry
def run_as_leader(crew, threads):
    """Run the announced call as thread 0 together with ``threads - 1`` workers; returns when all are done."""
    _run_repeated(crew, 0, threads)
    _wait_for_counter(crew + 8 * FINISHED, threads - 1)


@entry
def run_as_worker(crew, thread, done, idle):
    """Take part in every call except `done`; return the last one seen after `idle` pauses without any.

    A call of fewer threads than `thread` + 1 is not this worker's and counts as idle time.
    """
    rounds = 0
    while rounds < idle and load_acquire(crew + 8 * QUIT) == 0:
        call = load_acquire(crew + 8 * CALL)
        if call == done:
            pause()
            rounds += 1
            continue
        done = call
        if thread < call % 65536:
            _run_repeated(crew, thread, call % 65536)
            atomic_add(crew + 8 * FINISHED, 1)
            rounds = 0
    return done
