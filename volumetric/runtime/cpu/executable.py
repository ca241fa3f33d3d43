"""A plan bound to resident weights on the CPU: one native call for each chunk of rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.errors import DeviceError
from volumetric.kernels.cpu.products import VECTOR_ROWS
from volumetric.kernels.cpu.steps import (
    CONTROL_WORDS,
    POSITION_WORD,
    ROWS_WORD,
    SCRATCH_BYTES_WORD,
    SCRATCH_WORD,
    SLOTS_WORD,
    STATES_WORD,
    STEP_WORDS,
    TAIL_ALL,
    TAIL_LAST,
    TAIL_MODE_WORD,
    TAIL_NONE,
)
from volumetric.runtime.batch import check_batch, check_pieces, forward_each, greedy_each, run_each
from volumetric.runtime.cpu.arena import address_of, aligned_zeros
from volumetric.runtime.cpu.batch import Blocks
from volumetric.runtime.cpu.governor import Governor
from volumetric.runtime.cpu.profile import walk_times
from volumetric.runtime.cpu.program import Mode, Program
from volumetric.runtime.cpu.state import CpuState, StateLayout, StateMemory, bytes_per_token
from volumetric.runtime.cpu.table import StepTable
from volumetric.runtime.cpu.team import TEAM
from volumetric.runtime.device import MemoryReport, Piece, RunOptions
from volumetric.runtime.plan import ROWS
from volumetric.runtime.profile import StepTime
from volumetric.runtime.state import check_input, check_room, check_vocabulary
from volumetric.runtime.state_file import restore_state

CHUNK = 512
"""Rows of one pass: enough to amortise opening the panels, few enough for activations to stay in L2."""


_PARTS = 12  # calls that a pass over many rows is made of
_WATCHED_STEPS = 4  # steps of a part while the governor looks around: each may wait for a scheduler's time slice
_STEP_BYTES = 8 * STEP_WORDS


class CpuExecutable:
    """A compiled plan. `forward` may be called from several Python threads; calls take turns."""

    def __init__(self, program: Program, options: RunOptions, threads: int) -> None:
        self.options = options
        self.threads = threads
        self._program: Program | None = program
        self._turn = threading.Lock()
        self._governor = Governor(threads)
        self._control = np.zeros(CONTROL_WORDS, np.int64)
        self._control_address = address_of(self._control)
        self._scratch = np.zeros(0, np.uint8)
        self._blocks = Blocks()

    @property
    def memory(self) -> MemoryReport:
        """Bytes of resident weights, of buffers, and of the cache per token."""
        program = self._open()
        per_token = bytes_per_token(program.plan, program.storage)
        scratch = program.layout.nbytes + self._scratch.nbytes
        return MemoryReport(weights=program.weights.nbytes, scratch=scratch, state_per_token=per_token)

    def new_state(self) -> CpuState:
        """An empty state."""
        program = self._open()
        plan, context = program.plan, self.options.context
        layout = StateLayout(specs=plan.states, pairs=program.layout.pairs, storage=program.storage, limit=context)
        return CpuState(StateMemory(layout))

    def restore(self, data: bytes) -> CpuState:
        """A state that goes on where the one went that `data` was saved of."""
        state = self.new_state()
        restore_state(state, data, self._open().plan.states, self.options.context)
        return state

    def run(self, pieces: Sequence[Piece]) -> list[NDArray[np.float32]]:
        """Append the rows of each piece to its state: single rows together, then one piece after the other."""
        plan = self._open().plan
        rows = check_pieces(plan, pieces, self.options.context)
        single = [i for i, x in enumerate(rows) if len(x) == 1 and pieces[i].wanted != "none"]
        if len(single) < 2:
            return run_each(self, plan, pieces)
        outputs = self.forward_batch([pieces[i].state for i in single], np.concatenate([rows[i] for i in single]))
        found: dict[int, F32Array] = dict(zip(single, outputs[:, None], strict=True))
        rest = [i for i in range(len(pieces)) if i not in found]
        if rest:
            found |= zip(rest, run_each(self, plan, [pieces[i] for i in rest]), strict=True)
        return [found[i] for i in range(len(pieces))]

    def forward(self, state: CpuState, x: NDArray[Any], *, last_only: bool = True) -> F32Array:
        """Append the rows of `x` to `state` and return the plan's output for the last row, or for all of them.

        Raises
        ------
        GenerationError : the context cannot hold the rows, or an id is outside of the vocabulary
        ShapeError : `x` is not what the plan reads
        """
        program = self._open()
        plan = program.plan
        x = check_input(plan, x)
        if x.dtype == np.int32:
            check_vocabulary(plan, x)
        check_room(state.position, len(x), self.options.context)
        program.layout.check_positions(state.position + len(x))
        value = plan.values[plan.outputs[0]]
        with self._turn:
            out = self._run(program, state, x, last_only=last_only)
        return out.reshape(-1, *value.shape[1:]) if value.shape[0] == ROWS else out

    def forward_batch(self, states: Sequence[CpuState], x: NDArray[Any]) -> F32Array:
        """Append one row of `x` to each of `states`; a row's bits are those of `forward` on its state alone.

        Raises
        ------
        GenerationError, ShapeError : as `forward`; or a state is named twice; no state has changed then
        """
        program = self._open()
        x = check_batch(program.plan, states, x, self.options.context)
        if len(states) == 1 or not program.layout.chunked:
            return forward_each(self, states, x)
        program.layout.check_positions(max(state.position for state in states) + 1)
        out = np.empty((len(x), program.layout.output_width), np.float32)
        with self._turn:
            for start in range(0, len(x), CHUNK):
                chunk = slice(start, start + CHUNK)
                self._batch(program, states[chunk], x[chunk], out[chunk])
        value = program.plan.values[program.plan.outputs[0]]
        return out.reshape(-1, *value.shape[1:]) if value.shape[0] == ROWS else out

    def _batch(self, program: Program, states: Sequence[CpuState], x: NDArray[Any], out: F32Array) -> None:
        for state in states:
            state.memory.reserve(state.position + 1)
        table = program.table("batch")
        self._reserve(program, len(states))
        self._begin(program, x, TAIL_ALL, out)
        self._blocks.fill(self._control, states, program.layout.buffers, self.threads)
        self._run_table(table, len(states), "batch")
        for state in states:
            state.advance(1)
        self._collect(program, out, len(states))

    def greedy(self, states: Sequence[CpuState], tokens: Sequence[int]) -> Generator[list[int]]:
        """Feed `tokens`, yield the arg max of each sequence, feed those, and so on."""
        return greedy_each(self, states, tokens)

    def step_times(self, state: CpuState, rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Time of the steps of a call, see `Executable.step_times`; of one chunk, where `rows` are more than that."""
        program = self._open()
        rows = min(rows, CHUNK)
        value = program.plan.values[program.plan.inputs[0]]
        x = check_input(program.plan, np.zeros((rows, *value.shape[1:]), value.dtype))
        check_room(state.position, rows, self.options.context)
        program.layout.check_positions(state.position + rows)
        out = np.empty((1 if program.layout.output_in_tail else rows, program.layout.output_width), np.float32)
        mode = TAIL_ALL if len(out) == rows else TAIL_LAST
        with self._turn:
            table = program.table(self._ready(program, state, x, mode, out))
            return walk_times(table, self._control_address, self.threads, repeats)

    def warmup(self) -> None:
        """Compile every operation that this plan can need, or load it from the cache."""
        program = self._open()
        for mode in ("few", "many", "last", "batch"):
            program.table(mode)

    def close(self) -> None:
        """Drop weights and buffers."""
        self._program = None
        self._scratch = np.zeros(0, np.uint8)

    # ---- one call

    def _open(self) -> Program:
        if self._program is None:
            raise DeviceError("this executable is closed", hint="compile the plan again")
        return self._program

    def _run(self, program: Program, state: CpuState, x: NDArray[Any], *, last_only: bool) -> F32Array:
        """Run `x` in chunks and collect the output rows."""
        rows = len(x)
        wanted = 1 if last_only and program.layout.output_in_tail else rows
        out = np.empty((wanted, program.layout.output_width), np.float32)
        step = CHUNK if program.layout.chunked else rows
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            mode = TAIL_ALL
            if wanted == 1 and rows > 1:
                mode = TAIL_LAST if stop == rows else TAIL_NONE
            self._chunk(program, state, x[start:stop], mode, out if wanted == 1 else out[start:stop])
        return out[-1:] if last_only else out

    def _chunk(self, program: Program, state: CpuState, x: NDArray[Any], mode: int, out: F32Array) -> None:
        rows = len(x)
        table_mode = self._ready(program, state, x, mode, out)
        self._run_table(program.table(table_mode), rows, table_mode)
        state.advance(rows)
        if mode != TAIL_NONE:
            self._collect(program, out, rows)

    def _ready(self, program: Program, state: CpuState, x: NDArray[Any], mode: int, out: F32Array) -> Mode:
        """Prepare memory and the control block for a call; returns which table it runs."""
        rows = len(x)
        state.memory.reserve(state.position + rows)
        table_mode: Mode = "few" if rows <= VECTOR_ROWS else "many" if mode == TAIL_ALL else "last"
        program.table(table_mode)  # operations ask for their scratch as they are added
        self._reserve(program, rows)
        program.layout.place_opened(state.position + rows)
        self._begin(program, x, mode, out)
        self._control[POSITION_WORD] = state.position
        self._control[STATES_WORD] = state.memory.table
        return table_mode

    def _begin(self, program: Program, x: NDArray[Any], mode: int, out: F32Array) -> None:
        """Write what the control block says about rows and values."""
        self._place_ends(program, x, mode, out)
        self._control[ROWS_WORD] = len(x)
        self._control[TAIL_MODE_WORD] = mode
        self._control[SLOTS_WORD] = program.layout.buffers.slots_address

    def _collect(self, program: Program, out: F32Array, rows: int) -> None:
        """Copy the last rows of the output, unless they were written where they belong."""
        if not program.layout.writes_output:
            output = program.layout.slot(program.plan.outputs[0])
            out[:] = program.layout.buffers.view(output, out.shape[1])[rows - len(out) : rows]

    def _run_table(self, table: StepTable, rows: int, mode: Mode) -> None:
        """Run all steps: one native call for few rows, some calls for many, so that the governor learns in time."""
        few, governor = mode in ("few", "batch"), self._governor
        kind = f"{mode} {rows.bit_length()}"  # durations per row are alike within a factor of two
        watched = governor.uncertain(kind)
        count = _WATCHED_STEPS if watched else table.steps if few else -(-table.steps // _PARTS)
        whole = since = time.perf_counter()
        worked, waited, changed, units = time.thread_time(), 0.0, False, 0
        for first in range(0, table.steps, count):
            steps, began = min(count, table.steps - first), time.perf_counter()
            waited += TEAM.run(table.address + first * _STEP_BYTES, steps, self._control_address, governor.threads)
            now, units = time.perf_counter(), units + rows * steps
            seconds = now - since
            if watched and governor.glance(
                seconds, waited + max(seconds - (time.thread_time() - worked), 0.0), seconds / units, kind
            ):
                since, worked, waited, changed, units = now, time.thread_time(), 0.0, True, 0
            elif not few:
                governor.observe((now - began) / (rows * steps), kind, prove=False)
        if few and not changed:
            governor.observe((time.perf_counter() - whole) / (rows * table.steps), kind)

    def _reserve(self, program: Program, rows: int) -> None:
        """Make buffers and scratch large enough; tables tell how much scratch their operations need."""
        if rows > program.layout.buffers.rows:
            wanted = rows if rows <= VECTOR_ROWS or not program.layout.chunked else CHUNK
            program.layout.buffers.reserve(max(wanted, VECTOR_ROWS))
        each = -(-program.layout.scratch_bytes // 4096) * 4096 + 64
        if self._scratch.nbytes < each * self.threads:
            self._scratch = aligned_zeros(each * self.threads)
            self._control[SCRATCH_WORD] = address_of(self._scratch)
            self._control[SCRATCH_BYTES_WORD] = each

    def _place_ends(self, program: Program, x: NDArray[Any], mode: int, out: F32Array) -> None:
        """Point the input's and the output's slots to this call's arrays."""
        plan, buffers = program.plan, program.layout.buffers
        rows, source = len(x), program.layout.slot(plan.inputs[0])
        if x.dtype == np.int32:
            buffers.place(source, address_of(x), x.strides[0])
        else:
            width = plan.values[plan.inputs[0]].width
            buffers.view(source, width)[:rows] = x.reshape(rows, width)
        if program.layout.writes_output:
            # Rows keep their numbers in the tail: row rows - 1 must land in the only row of the array.
            skipped = rows - 1 if mode == TAIL_LAST else 0
            buffers.place(
                program.layout.slot(plan.outputs[0]), address_of(out) - skipped * out.strides[0], out.strides[0]
            )
