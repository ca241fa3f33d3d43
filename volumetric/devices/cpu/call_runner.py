"""Run a network: prepare memory and control block, then run its table, part by part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.devices.cpu.arena import CallScratch, address_of
from volumetric.devices.cpu.control_block import ControlBlock
from volumetric.devices.cpu.cpu_state import CpuState
from volumetric.devices.cpu.kernels.products import DIRECT_ROWS, VECTOR_ROWS
from volumetric.devices.cpu.kernels.step_words import STEP_WORDS, STOP_WORD
from volumetric.devices.cpu.profile import step_times_of_table
from volumetric.devices.cpu.row_programs import RowPrograms
from volumetric.devices.cpu.rows.row_step_builder import form_of
from volumetric.devices.cpu.step_table import StepTable
from volumetric.devices.cpu.subgraph_steps import CallValues
from volumetric.devices.cpu.thread_control import StepTableExecutor
from volumetric.network import OUTPUT
from volumetric.run.call_batch import CallOutputs, CheckedRows, RowSpan
from volumetric.run.step_times import StepTime

CHUNK = 512
"""Rows of one pass: enough to amortise unpacking the panels, few enough for activations to stay in L2."""

_STEP_BYTES = 8 * STEP_WORDS
_CALLS = 12  # that a pass over many rows consists of
_SPARE_ROWS = 16
"""Rows after the last that a register tile may read."""


@dataclass(frozen=True, slots=True, eq=False)
class CpuCall:
    """Ranges of rows of several sequences that run together."""

    spans: Sequence[RowSpan]
    parts: Sequence[CheckedRows]

    @property
    def states(self) -> list[CpuState]:
        """State of each span's sequence."""
        return [self.parts[span.sequence].state for span in self.spans]

    def rows(self, names: Collection[str]) -> list[range]:
        """Rows of each range, by index, for which one of the outputs `names` is requested."""
        pairs = [(self.parts[span.sequence], span) for span in self.spans]
        return [range(0) if set(names).isdisjoint(part.outputs) else part.rows(span) for part, span in pairs]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTable:
    """A prepared call.

    Attributes
    ----------
    table, values : the steps, and the values they access
    runs : steps that run
    body : number of steps before the tail
    early_rows : requested rows of values that the tail moves
    early_values : those values, once the call has run
    """

    table: StepTable
    values: CallValues
    runs: tuple[range, ...]
    body: int
    early_rows: Mapping[int, list[int]]
    early_values: dict[int, F32Array] = field(default_factory=dict)


class Runner:
    """Runs calls of a program, one at a time."""

    def __init__(self, program: RowPrograms, executor: StepTableExecutor) -> None:
        self.program = program
        self.walker = executor
        self._scratch = CallScratch()
        self._control = ControlBlock(self._scratch, program.settings.opened_bytes)
        self._last: PreparedTable | None = None

    @property
    def scratch_bytes(self) -> int:
        """Bytes of memory in addition to weights and states."""
        return self._control.nbytes + self.program.between.scratch_bytes

    def compile_ahead(self) -> None:
        """Compile, or load from the cache, everything a call may run."""
        self.program.prepare()
        self.walker.prepare(self._scratch.control)

    def run(self, call: CpuCall, handed: CallOutputs) -> None:
        """Compute a call and pass its outputs to the caller."""
        outputs, settings = self.program.cut.outputs, self.program.settings
        output_rows = handed.requested_rows(call.spans)
        late = {name: rows for name, rows in output_rows.items() if outputs[name] in settings.late}
        place = {row: i for i, row in enumerate(sorted(set().union(*late.values())))}
        written, direct = self.output_buffer(len(place)), False
        if settings.written is not None and len(late.get(OUTPUT, ())) == len(place) > 0:
            places = handed.result_places(call.spans, OUTPUT)
            direct = isinstance(places, slice)
            written = handed.rows[OUTPUT][places] if direct else written
        ready = self.prepare(call, {outputs[name]: rows for name, rows in output_rows.items()}, written)
        self.run_table(ready)
        for state, span in zip(ready.values.states, call.spans, strict=True):
            state.position += len(span)
        for name, rows in output_rows.items():
            i = outputs[name]
            if i in ready.early_values:
                handed.store_rows(call.spans, {name: ready.early_values[i]})
            elif not (direct and name == OUTPUT):
                values = written if i == settings.written else ready.values.view(i)
                handed.store_rows(call.spans, {name: values[[place[row] for row in rows] if name in late else rows]})

    def output_buffer(self, rows: int) -> F32Array:
        """Allocate rows for the output that its step writes directly, if there is one."""
        i = self.program.settings.written
        return np.empty((rows, 0 if i is None else self.program.graph.tensors[i].width), np.float32)

    def step_times(self, call: CpuCall, repeats: int) -> list[StepTime]:
        """Time of each step of a call, which changes the states but not their positions."""
        written = self.output_buffer(sum(map(len, call.spans)))  # a step writes there: it must outlive the run
        ready = self.prepare(call, {i: [0] for i in self.program.graph.outputs}, written)
        times = step_times_of_table(ready.table, self._scratch.control, self.walker.threads, repeats, ready.values)
        del written
        return times

    def is_last(self, ready: PreparedTable) -> bool:
        """Whether no other call has been prepared since."""
        return ready is self._last

    def drop_kinds(self) -> None:
        """Prevent repetition of any prepared call."""
        self._last = None

    def repeat(self, ready: PreparedTable, times: int) -> None:
        """Feed a token to each sequence, select the next ones, and so on, for up to `times` tokens."""
        [part], rows = ready.table.parts, sum(ready.values.lengths)
        self._scratch.words[STOP_WORD] = 0
        kind = f"{part.name} choosing {rows.bit_length()}"
        apart = ready.table.apart  # one of these steps reads every thread's result of the other
        self.walker.run(
            part.address, part.count + apart, self._scratch.control, kind=kind, rows=rows, times=times, together=apart
        )

    def prepare(self, call: CpuCall, output_rows: Mapping[int, list[int]], written: F32Array) -> PreparedTable:
        """Prepare memory and the control block for a call.

        Parameters
        ----------
        output_rows : output → requested rows of the call
        written : return value of `self.written`, or another target array
        """
        program, states, partition, settings = self.program, call.states, self.program.cut, self.program.settings
        for state, span in zip(states, call.spans, strict=True):
            state.memory.reserve(state.position, len(span))
        lengths = [len(span) for span in call.spans]
        count = sum(lengths)
        late = call.rows([name for name, i in partition.outputs.items() if i in settings.late and i in output_rows])
        table = program.table((form_of(count, settings), form_of(sum(map(len, late)), settings)))
        self._bind(table, count)
        ends = self._control.fill(lengths, states, late, table)
        values = CallValues(program.graph, table, states, lengths, len(ends))
        for name, i in partition.inputs.items():
            room, start = values.view(i), 0
            for span in call.spans:
                x = call.parts[span.sequence].inputs[name][span.start : span.stop]
                room[start : start + len(span)] = x.reshape(len(span), -1)
                start += len(span)
        if settings.written is not None:
            table.set_address(settings.written, address_of(written), written.strides[0])
        early = {i: output_rows[i] for i in settings.gathered if i in output_rows} if ends else {}
        steps = (0, *table.ends)
        runs = tuple(range(steps[some.start], steps[some.stop]) for some in partition.needed_uses(output_rows))
        self._last = PreparedTable(table, values, runs, steps[partition.body], early)
        return self._last

    def run_table(self, ready: PreparedTable) -> None:
        """Run the steps that outputs and states need, including subgraphs that do not run on rows."""
        if ready.early_rows:
            for run in ready.runs:
                self._run_table(ready, run.start, min(run.stop, ready.body))
            ready.early_values.update({i: ready.values.view(i)[rows] for i, rows in ready.early_rows.items()})
        for run in ready.runs:
            self._run_table(ready, max(run.start, ready.body) if ready.early_rows else run.start, run.stop)

    def _run_table(self, ready: PreparedTable, start: int, end: int) -> None:
        """Run some steps."""
        values, rows = ready.values, sum(ready.values.lengths)
        calls = 1 if rows <= DIRECT_ROWS else _CALLS
        for part in ready.table.parts:
            if part.host is not None:
                if start <= part.first < end:
                    part.host(values)
                continue
            skipped = max(start - part.first, 0)
            steps, address = min(part.count, end - part.first) - skipped, part.address + skipped * _STEP_BYTES
            if steps <= 0:
                continue
            kind = f"{part.name} {rows.bit_length()}"  # durations per row are equal within a factor of two
            self.walker.run(address, steps, self._scratch.control, kind=kind, rows=rows, calls=calls)

    def _bind(self, table: StepTable, rows: int) -> None:
        """Reserve memory for a call of a table: for all calls of its kind, unless whole sequences must run together."""
        rows = max(rows, table.rows, VECTOR_ROWS)
        if rows > VECTOR_ROWS and not self.program.graph.whole_sequences:
            rows = max(rows, CHUNK)
        size = table.placement.arena * (rows + _SPARE_ROWS)
        self._scratch.reserve(size, each=table.scratch, threads=self.walker.threads)
        table.bind(self._scratch.arena, rows=rows, spare=_SPARE_ROWS)
