"""Running a network: memory and control block made ready, then its table, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.kernels.cpu.products import DIRECT_ROWS, VECTOR_ROWS
from volumetric.kernels.cpu.steps import STOP_WORD
from volumetric.runtime.batch import Span
from volumetric.runtime.cpu.arena import Scratch, address_of
from volumetric.runtime.cpu.between import CallValues
from volumetric.runtime.cpu.call import Control
from volumetric.runtime.cpu.profile import walk_times
from volumetric.runtime.cpu.program import Program
from volumetric.runtime.cpu.rows.draft import form_of
from volumetric.runtime.cpu.state import CpuState
from volumetric.runtime.cpu.table import StepTable
from volumetric.runtime.cpu.walking import Walker
from volumetric.runtime.device import Piece
from volumetric.runtime.profile import StepTime

CHUNK = 512
"""Rows of one pass: enough to amortise opening the panels, few enough for activations to stay in L2."""

_CALLS = 12  # that a pass over many rows is made of
_SPARE_ROWS = 16
"""Rows beyond the last that a register tile may read."""


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

    table: StepTable
    values: CallValues
    outputs: Sequence[int]


class Runner:
    """Runs calls of a program, one at a time."""

    def __init__(self, program: Program, walker: Walker) -> None:
        self.program = program
        self.walker = walker
        self._scratch = Scratch()
        self._control = Control(self._scratch, program.settings.opened_bytes)
        self._last: Ready | None = None

    @property
    def scratch_bytes(self) -> int:
        """Memory besides weights and states."""
        return self._control.nbytes + self.program.between.scratch_bytes

    def run(self, call: Call, out: F32Array) -> int:
        """Compute a call; returns how many rows of `out` were written."""
        settings, ready = self.program.settings, self.prepare(call, out)
        self.walk(ready)
        for state, part in zip(ready.values.states, call.parts, strict=True):
            state.advance(len(part))
        if ready.outputs and not settings.writes_output:
            found = ready.values.view(settings.graph.outputs[0])
            out[: len(ready.outputs)] = found[[settings.output_row(row, i) for i, row in enumerate(ready.outputs)]]
        return len(ready.outputs)

    def step_times(self, call: Call, repeats: int) -> list[StepTime]:
        """Time of each step of a call, which changes the states but not their positions."""
        width = self.program.graph.tensors[self.program.graph.outputs[0]].width
        out = np.empty((sum(map(len, call.parts)), width), np.float32)  # steps write there: it must outlive them
        ready = self.prepare(call, out)
        times = walk_times(ready.table, self._scratch.control, self.walker.threads, repeats, ready.values)
        del out
        return times

    def is_last(self, ready: Ready) -> bool:
        """Whether no other call has been prepared since."""
        return ready is self._last

    def forget(self) -> None:
        """Let no call that was prepared be repeated."""
        self._last = None

    def repeat(self, ready: Ready, times: int) -> None:
        """Feed a token to each sequence, choose the next ones, and so on, for up to `times` tokens."""
        [part], rows = ready.table.parts, sum(ready.values.lengths)
        self._scratch.words[STOP_WORD] = 0
        kind = f"{part.name} choosing {rows.bit_length()}"
        steps = part.count + ready.table.apart
        self.walker.walk(part.address, steps, self._scratch.control, kind=kind, rows=rows, times=times)

    def prepare(self, call: Call, out: F32Array) -> Ready:
        """Prepare memory and the control block for a call whose outputs go to `out`."""
        program, states = self.program, call.states
        graph, settings = program.graph, program.settings
        for state, part in zip(states, call.parts, strict=True):
            state.memory.reserve(state.position + len(part))
        lengths = [len(part) for part in call.parts]
        count = sum(lengths)
        wanted = [call.wanted(part) for part in call.parts]
        table = program.table((form_of(count), form_of(sum(map(len, wanted)))))
        self._bind(table, count)
        outputs = self._control.fill(lengths, states, wanted, table)
        values = CallValues(graph, table, states, lengths, len(outputs))
        [given] = graph.given
        room = values.view(given)
        start = 0
        for part in call.parts:
            x = call.rows[part.piece][part.start : part.stop]
            room[start : start + len(part)] = x.reshape(len(part), -1)
            start += len(part)
        if settings.writes_output:
            table.lend(graph.outputs[0], address_of(out), out.strides[0])
        self._last = Ready(table, values, outputs)
        return self._last

    def walk(self, ready: Ready) -> None:
        """Run all steps, or those before the tail where no row is wanted, and what stands between."""
        values, rows = ready.values, sum(ready.values.lengths)
        calls = 1 if rows <= DIRECT_ROWS else _CALLS
        for part in ready.table.parts:
            if part.tail and not ready.outputs:
                continue
            if part.host is not None:
                part.host(values)
                continue
            steps = part.count if ready.outputs else part.body
            kind = f"{part.name} {rows.bit_length()}"  # durations per row are alike within a factor of two
            self.walker.walk(part.address, steps, self._scratch.control, kind=kind, rows=rows, calls=calls)

    def _bind(self, table: StepTable, rows: int) -> None:
        """Make room for a call of a table: for all calls of its kind, unless sequences must come whole."""
        rows = max(rows, table.rows, VECTOR_ROWS)
        if rows > VECTOR_ROWS and not self.program.graph.whole:
            rows = max(rows, CHUNK)
        size = table.placement.arena * (rows + _SPARE_ROWS)
        self._scratch.reserve(size, each=table.scratch, threads=self.walker.threads)
        table.bind(self._scratch.arena, rows=rows, spare=_SPARE_ROWS)
