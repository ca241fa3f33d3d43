"""Running a program: memory and control block made ready, its table walked, and what lies between its steps run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.kernels.cpu.products import VECTOR_ROWS
from volumetric.kernels.cpu.steps import SCRATCH_BYTES_WORD, SCRATCH_WORD, STEP_WORDS
from volumetric.runtime.batch import Span
from volumetric.runtime.cpu.arena import address_of, aligned_zeros
from volumetric.runtime.cpu.between import CallValues
from volumetric.runtime.cpu.call import Control
from volumetric.runtime.cpu.governor import Governor
from volumetric.runtime.cpu.profile import walk_times
from volumetric.runtime.cpu.program import Mode, Program, form_of
from volumetric.runtime.cpu.state import CpuState
from volumetric.runtime.cpu.table import StepTable
from volumetric.runtime.cpu.team import TEAM
from volumetric.runtime.device import Piece
from volumetric.runtime.profile import StepTime

CHUNK = 512
"""Rows of one pass: enough to amortise opening the panels, few enough for activations to stay in L2."""

_PARTS = 12  # calls that a pass over many rows is made of
_WATCHED_STEPS = 4  # steps of a part while the governor looks around: each may wait for a scheduler's time slice
_STEP_BYTES = 8 * STEP_WORDS


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Parts of pieces that run together; `rows` are those of each piece."""

    parts: Sequence[Span]
    pieces: Sequence[Piece]
    rows: Sequence[NDArray[Any]]

    @property
    def states(self) -> list[CpuState]:
        """State of each part's sequence."""
        return [self.pieces[part.piece].state for part in self.parts]

    def wanted(self, part: Span) -> range:
        """Rows of a part that have an output, by their number in it."""
        wanted = self.pieces[part.piece].wanted
        ends = part.stop == len(self.rows[part.piece])
        return range(len(part)) if wanted == "all" else range(len(part) - (wanted == "last" and ends), len(part))

    def places(self, starts: Sequence[int]) -> list[int]:
        """Where its outputs belong, if those of each piece stand behind `starts`."""
        return [
            starts[part.piece] + (part.start + i if self.pieces[part.piece].wanted == "all" else 0)
            for part in self.parts
            for i in self.wanted(part)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A call that is ready to run: the table, what it finds, and the rows with an output."""

    mode: Mode
    table: StepTable
    values: CallValues
    outputs: Sequence[int]


class Runner:
    """Runs calls of a program, one at a time.

    Attributes
    ----------
    threads : that a call may use
    """

    def __init__(self, program: Program, threads: int) -> None:
        self.program = program
        self.threads = threads
        self._governor = Governor(threads)
        self._control = Control()
        self._scratch = np.zeros(0, np.uint8)
        self._last: Ready | None = None

    @property
    def scratch_bytes(self) -> int:
        """Memory besides weights and states."""
        return self.program.layout.nbytes + self._scratch.nbytes + self.program.between.scratch_bytes

    def run(self, call: Call, out: F32Array) -> int:
        """Compute a call; returns how many rows of `out` were written."""
        program, ready = self.program, self.prepare(call, out)
        self.walk(ready)
        for state, part in zip(ready.values.states, call.parts, strict=True):
            state.advance(len(part))
        if ready.outputs and not program.layout.writes_output:
            found = program.layout.view(program.graph.outputs[0])
            out[: len(ready.outputs)] = found[[program.output_row(row, i) for i, row in enumerate(ready.outputs)]]
        return len(ready.outputs)

    def step_times(self, call: Call, repeats: int) -> list[StepTime]:
        """Time of each step of a call, which changes the states but not their positions."""
        width = self.program.graph.tensors[self.program.graph.outputs[0]].width
        out = np.empty((sum(map(len, call.parts)), width), np.float32)  # steps write there: it must outlive them
        ready = self.prepare(call, out)
        times = walk_times(ready.table, self._control.address, self.threads, repeats, ready.values.run)
        del out
        return times

    def is_last(self, ready: Ready) -> bool:
        """Whether no other call has been prepared since."""
        return ready is self._last

    def next_row(self, ready: Ready) -> None:
        """Make the last call, of one row of each sequence, ready for the rows behind; its ids are the caller's."""
        self._control.next_row(len(ready.values.states))

    def prepare(self, call: Call, out: F32Array) -> Ready:
        """Prepare memory and the control block for a call whose outputs go to `out`."""
        program, states = self.program, call.states
        layout, graph = program.layout, program.graph
        for state, part in zip(states, call.parts, strict=True):
            state.memory.reserve(state.position + len(part))
        lengths = [len(part) for part in call.parts]
        count = sum(lengths)
        self._reserve(count)
        outputs = self._control.fill(lengths, states, [call.wanted(part) for part in call.parts], layout)
        mode = form_of(count), form_of(len(outputs))
        table = program.table(mode)  # operations ask for their scratch as they are added
        self._reserve_scratch(layout.scratch_bytes)
        [given] = graph.given
        room = layout.view(given)
        start = 0
        for part in call.parts:
            x = call.rows[part.piece][part.start : part.stop]
            room[start : start + len(part)] = x.reshape(len(part), -1)
            start += len(part)
        if layout.writes_output:
            layout.buffers.place(layout.slot(graph.outputs[0]), address_of(out), out.strides[0])
        self._last = Ready(mode, table, CallValues(graph, layout, states, lengths, len(outputs)), outputs)
        return self._last

    def walk(self, ready: Ready) -> None:
        """Run all steps, or those before the tail where no row is wanted, and what stands between."""
        mode, table, values = ready.mode, ready.table, ready.values
        first, end = 0, table.steps if values.outputs else table.body
        for stop, core in table.stops:
            if core.segment.tail and not values.outputs:
                break
            self._run_steps(table, first, stop, sum(values.lengths), mode)
            values.run(core)
            first = stop
        self._run_steps(table, first, end, sum(values.lengths), mode)

    def _run_steps(self, table: StepTable, start: int, end: int, rows: int, mode: Mode) -> None:
        """Run some steps: in one native call for few rows, in some for many, so that the governor learns in time."""
        steps = end - start
        if steps <= 0:
            return
        few, governor = mode[0] != "many", self._governor
        kind = f"{mode[0]} {start} {rows.bit_length()}"  # durations per row are alike within a factor of two
        watched = governor.uncertain(kind)
        count = _WATCHED_STEPS if watched else steps if few else -(-steps // _PARTS)
        whole = since = time.perf_counter()
        worked, waited, changed, units = time.thread_time(), 0.0, False, 0
        for first in range(start, end, count):
            some, began = min(count, end - first), time.perf_counter()
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

    def _reserve(self, rows: int) -> None:
        """Make buffers large enough."""
        buffers = self.program.layout.buffers
        if rows > buffers.rows:
            wanted = rows if rows <= VECTOR_ROWS or self.program.graph.whole else CHUNK
            buffers.reserve(max(wanted, VECTOR_ROWS))

    def _reserve_scratch(self, size: int) -> None:
        """Make the scratch of each thread large enough; tables tell how much their operations need."""
        each = -(-size // 4096) * 4096 + 64
        if self._scratch.nbytes < each * self.threads:
            self._scratch = aligned_zeros(each * self.threads)
            self._control.words[SCRATCH_WORD] = address_of(self._scratch)
            self._control.words[SCRATCH_BYTES_WORD] = each
