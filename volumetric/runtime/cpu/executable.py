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
from volumetric.kernels.cpu.products import DIRECT_ROWS, VECTOR_ROWS
from volumetric.kernels.cpu.steps import SCRATCH_BYTES_WORD, SCRATCH_WORD, STEP_WORDS
from volumetric.runtime.batch import Span, check_pieces, deal, greedy_each
from volumetric.runtime.cpu.arena import address_of, aligned_zeros
from volumetric.runtime.cpu.call import Control
from volumetric.runtime.cpu.governor import Governor
from volumetric.runtime.cpu.profile import walk_times
from volumetric.runtime.cpu.program import Mode, Program, form_of
from volumetric.runtime.cpu.state import CpuState, StateLayout, StateMemory, bytes_per_token
from volumetric.runtime.cpu.table import StepTable
from volumetric.runtime.cpu.team import TEAM
from volumetric.runtime.device import MemoryReport, Piece, RunOptions, Wanted
from volumetric.runtime.plan import ROWS
from volumetric.runtime.profile import StepTime
from volumetric.runtime.state import check_input, check_room
from volumetric.runtime.state_file import restore_state

CHUNK = 512
"""Rows of one pass: enough to amortise opening the panels, few enough for activations to stay in L2."""


_PARTS = 12  # calls that a pass over many rows is made of
_WATCHED_STEPS = 4  # steps of a part while the governor looks around: each may wait for a scheduler's time slice
_STEP_BYTES = 8 * STEP_WORDS


class CpuExecutable:
    """A compiled plan. `run` may be called from several Python threads; calls take turns."""

    def __init__(self, program: Program, options: RunOptions, threads: int) -> None:
        self.options = options
        self.threads = threads
        self._program: Program | None = program
        self._turn = threading.Lock()
        self._governor = Governor(threads)
        self._control = Control()
        self._scratch = np.zeros(0, np.uint8)

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

    def run(self, pieces: Sequence[Piece]) -> list[F32Array]:
        """Append the rows of each piece to its state; see `Executable.run`.

        A row has the same bits in any company, and a prompt in any pieces.

        Raises
        ------
        GenerationError : a context cannot hold the rows, a state is named twice, or an id is outside of the vocabulary
        ShapeError : there is no piece, or rows are not what the plan reads
        """
        program = self._open()
        layout, plan = program.layout, program.plan
        rows = check_pieces(plan, pieces, self.options.context)
        for piece, x in zip(pieces, rows, strict=True):
            layout.check_positions(piece.state.position + len(x))
        sizes = [len(x) for x in rows]
        counts = [{"all": size, "last": 1, "none": 0}[piece.wanted] for piece, size in zip(pieces, sizes, strict=True)]
        out = np.empty((sum(counts), layout.output_width), np.float32)
        with self._turn:
            done = 0
            for parts in deal(sizes, CHUNK, cut=layout.chunked):
                done += self._call(program, parts, pieces, rows, out[done:])
        value = plan.values[plan.outputs[0]]
        if value.shape[0] == ROWS:
            out = out.reshape(-1, *value.shape[1:])
        return np.split(out, np.cumsum(counts[:-1])) if len(pieces) > 1 else [out]

    def forward(self, state: CpuState, x: NDArray[Any], *, last_only: bool = True) -> F32Array:
        """Append the rows of `x` to `state` and return the output for the last row, or for all of them: one piece."""
        return self.run([Piece(state, x, "last" if last_only else "all")])[0]

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
        out = np.empty((1, program.layout.output_width), np.float32)
        with self._turn:
            mode, _ = self._ready(program, [Span(0, 0, rows)], [Piece(state, x)], [x], out)
            return walk_times(program.table(mode), self._control.address, self.threads, repeats)

    def warmup(self) -> None:
        """Compile every operation that this plan can need, or load it from the cache."""
        program = self._open()
        for tail in (1, DIRECT_ROWS, CHUNK):
            for rows in (1, DIRECT_ROWS, CHUNK):
                if rows >= tail:
                    program.table((form_of(rows), form_of(tail)))

    def close(self) -> None:
        """Drop weights and buffers."""
        self._program = None
        self._scratch = np.zeros(0, np.uint8)

    # ---- one call

    def _open(self) -> Program:
        if self._program is None:
            raise DeviceError("this executable is closed", hint="compile the plan again")
        return self._program

    def _call(
        self, program: Program, parts: list[Span], pieces: Sequence[Piece], rows: Sequence[NDArray[Any]], out: F32Array
    ) -> int:
        """Compute `parts` of `pieces`; returns how many rows of `out` were written."""
        mode, outputs = self._ready(program, parts, pieces, rows, out)
        table = program.table(mode)
        self._run_table(table, table.steps if outputs else table.body, sum(map(len, parts)), mode)
        for part in parts:
            pieces[part.piece].state.advance(len(part))
        if outputs and not program.layout.writes_output:
            found = program.layout.buffers.view(program.layout.slot(program.plan.outputs[0]), out.shape[1])
            out[: len(outputs)] = found[[program.output_row(row, i) for i, row in enumerate(outputs)]]
        return len(outputs)

    def _ready(
        self, program: Program, parts: list[Span], pieces: Sequence[Piece], rows: Sequence[NDArray[Any]], out: F32Array
    ) -> tuple[Mode, list[int]]:
        """Prepare memory and the control block for a call; returns which table it runs, and the rows with an output."""
        layout = program.layout
        states: list[CpuState] = [pieces[part.piece].state for part in parts]
        for state, part in zip(states, parts, strict=True):
            state.memory.reserve(state.position + len(part))
        count = sum(map(len, parts))
        self._reserve(program, count)
        wanted: list[Wanted] = [pieces[part.piece].wanted for part in parts]
        ends = [part.stop == len(rows[part.piece]) for part in parts]
        outputs = self._control.fill(parts, states, wanted, ends, layout)
        mode = form_of(count), form_of(len(outputs))
        program.table(mode)  # operations ask for their scratch as they are added
        self._reserve_scratch(layout.scratch_bytes)
        value = program.plan.values[program.plan.inputs[0]]
        dtype = np.int32 if value.dtype == "int32" else np.float32
        room = layout.buffers.view(layout.slot(program.plan.inputs[0]), value.width, dtype)
        start = 0
        for part in parts:
            x = rows[part.piece][part.start : part.stop]
            room[start : start + len(part)] = x.reshape(len(part), -1)
            start += len(part)
        if layout.writes_output:
            layout.buffers.place(layout.slot(program.plan.outputs[0]), address_of(out), out.strides[0])
        return mode, outputs

    def _run_table(self, table: StepTable, steps: int, rows: int, mode: Mode) -> None:
        """Run the first `steps` steps: one native call for few rows, some for many: so the governor learns in time."""
        if steps == 0:  # every step belongs to the tail, and no row is wanted
            return
        few, governor = mode[0] != "many", self._governor
        kind = f"{mode[0]} {rows.bit_length()}"  # durations per row are alike within a factor of two
        watched = governor.uncertain(kind)
        count = _WATCHED_STEPS if watched else steps if few else -(-steps // _PARTS)
        whole = since = time.perf_counter()
        worked, waited, changed, units = time.thread_time(), 0.0, False, 0
        for first in range(0, steps, count):
            some, began = min(count, steps - first), time.perf_counter()
            waited += TEAM.run(table.address + first * _STEP_BYTES, some, self._control.address, governor.threads)
            now, units = time.perf_counter(), units + rows * some
            seconds = now - since
            if watched and governor.glance(
                seconds, waited + max(seconds - (time.thread_time() - worked), 0.0), seconds / units, kind
            ):
                since, worked, waited, changed, units = now, time.thread_time(), 0.0, True, 0
            elif not few:
                governor.observe((now - began) / (rows * some), kind, prove=False)
        if few and not changed:
            governor.observe((time.perf_counter() - whole) / (rows * steps), kind)

    def _reserve(self, program: Program, rows: int) -> None:
        """Make buffers large enough."""
        if rows > program.layout.buffers.rows:
            wanted = rows if rows <= VECTOR_ROWS or not program.layout.chunked else CHUNK
            program.layout.buffers.reserve(max(wanted, VECTOR_ROWS))

    def _reserve_scratch(self, size: int) -> None:
        """Make the scratch of each thread large enough; tables tell how much their operations need."""
        each = -(-size // 4096) * 4096 + 64
        if self._scratch.nbytes < each * self.threads:
            self._scratch = aligned_zeros(each * self.threads)
            self._control.words[SCRATCH_WORD] = address_of(self._scratch)
            self._control.words[SCRATCH_BYTES_WORD] = each
