"""A network bound to resident weights on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from math import isfinite

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import DeviceError, GenerationError
from volumetric.devices.cpu.call_runner import CHUNK, CpuCall, Runner
from volumetric.devices.cpu.cpu_state import CpuState, StateLayout, StateMemory, bytes_per_token
from volumetric.devices.cpu.greedy_loop import TokenLoop
from volumetric.devices.cpu.kv_cache import BLOCK
from volumetric.devices.cpu.row_programs import RowPrograms
from volumetric.devices.cpu.thread_control import StepTableExecutor
from volumetric.network import OUTPUT, Params
from volumetric.run.call_batch import (
    CallOutputs,
    CheckedRows,
    RowSpan,
    check_once,
    check_sequence_rows,
    deal_spans,
    greedy_each,
)
from volumetric.run.device import Constant, MemoryReport, RowInputs, RowOutputs, RunOptions, SequenceRows, output_of
from volumetric.run.logits import check_argmax_count
from volumetric.run.plan import Plan
from volumetric.run.sequence_state import check_capacity, check_tokens, check_vocabulary, fixed_bytes
from volumetric.run.step_times import StepTime


class CpuExecutable:
    """A compiled network. Several Python threads may call `run`; calls are serialised."""

    def __init__(
        self,
        program: RowPrograms,
        options: RunOptions,
        executor: StepTableExecutor,
        beside: Callable[[Plan, Params], CpuExecutable],
    ) -> None:
        self.options = options
        self._beside = beside
        self._runner: Runner | None = Runner(program, executor)
        self._turn = threading.Lock()

    @property
    def memory(self) -> MemoryReport:
        """Bytes of resident weights, of buffers, and of the cache per token."""
        runner = self._open()
        program = runner.program
        per_token = bytes_per_token(program.cut.plan, program.settings.storage)
        return MemoryReport(
            weights=program.settings.weights.nbytes + program.between.weight_bytes,
            scratch=runner.scratch_bytes,
            state_per_token=per_token,
            state_fixed=fixed_bytes(program.cut.plan.states),
            block=BLOCK,
        )

    def new_state(self) -> CpuState:
        """An empty state."""
        settings = self._open().program.settings
        specs, limit = settings.cut.plan.states, self.options.context
        layout = StateLayout(specs=specs, pairs=settings.pairs, storage=settings.storage, limit=limit)
        return CpuState(StateMemory(layout))

    def restore(self, data: bytes) -> CpuState:
        """Return a state that continues from saved `data`."""
        state = self.new_state()
        from volumetric.run.state_file import restore_state  # imports msgspec, only for callers that save states

        restore_state(state, data, self._open().program.cut.plan.states, self.options.context)
        return state

    def run(self, pieces: Sequence[SequenceRows]) -> list[RowOutputs]:
        """Append the rows of each sequence to its state; see `Executable.run`.

        Rows are batch-invariant, and independent of how a prompt is split, unless layers take statistics over a call.

        Raises
        ------
        GenerationError : a context cannot hold the rows, a state is passed twice, or an id is outside of the vocabulary
        ShapeError : there are no sequences, or rows do not match the network's inputs
        """
        runner = self._open()
        graph = runner.program.graph
        parts = check_sequence_rows(runner.program.cut.plan, pieces, self.options.context)
        for part in parts:
            self._check_positions(part.state.position + len(part))
        handed = CallOutputs(runner.program.cut.plan, parts)
        with self._turn:
            for spans in deal_spans(
                [len(part) for part in parts], CHUNK, split=not graph.whole_sequences, each=graph.max_rows
            ):
                runner.run(CpuCall(spans, parts), handed)
        return handed.by_sequence

    def forward(self, state: CpuState, x: RowInputs, *, last_only: bool = True) -> F32Array:
        """Append the rows of `x` to `state` and return the output for the last row, or for all rows."""
        return output_of(self.run([SequenceRows(state, x, "last" if last_only else "all", (OUTPUT,))])[0])

    def greedy(
        self, states: Sequence[CpuState], tokens: Sequence[int], constant: Constant | None = None
    ) -> Generator[list[int]]:
        """Feed `tokens`, yield the argmax of each sequence, feed those, and so on."""
        runner = self._open()
        if TokenLoop.supports(runner):
            return self._loop(runner, states, tokens, constant)
        return greedy_each(self, runner.program.cut.plan, states, tokens, constant)

    def _loop(
        self, runner: Runner, states: Sequence[CpuState], tokens: Sequence[int], constant: Constant | None
    ) -> Generator[list[int]]:
        plan, positions = runner.program.cut.plan, runner.program.cut.positions
        limit = self.options.context if positions is None else min(self.options.context, positions)
        check_once(states)
        more = check_tokens(plan, tokens, constant)
        loop, vocabulary = TokenLoop(runner, states, limit, more), runner.program.vocabulary
        while True:
            if max(state.position for state in states) >= limit:  # the caller may have moved a state meanwhile
                for state in states:
                    check_capacity(state.position, 1, self.options.context)
                    self._check_positions(state.position + 1)
            if max(tokens) >= vocabulary:
                check_vocabulary(plan, np.array(tokens, np.int32))
            with self._turn:
                tokens, top = loop.step(tokens)
            for place, logit in enumerate(top):
                if not isfinite(logit):
                    check_argmax_count(logit, sequence=place)
            yield list(tokens)

    def step_times(self, states: Sequence[CpuState], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Time of the steps of a call, see `Executable.step_times`; for many rows, of one chunk."""
        check_once(states)
        runner = self._open()
        plan = runner.program.cut.plan
        rows = min(rows, max(1, CHUNK // len(states)), runner.program.graph.max_rows or CHUNK)
        values = {name: plan.values[i] for name, i in plan.inputs.items()}
        inputs = {name: np.zeros((rows, *value.shape[1:]), value.dtype) for name, value in values.items()}
        for state in states:
            check_capacity(state.position, rows, self.options.context)
            self._check_positions(state.position + rows)
        if any(spec.kind == "fixed" for spec in plan.states.values()):
            states = [state.fork() for state in states]  # each run replaces them
        with self._turn:
            parts = [CheckedRows(state, "last", inputs, tuple(plan.outputs)) for state in states]
            return runner.step_times(CpuCall([RowSpan(i, 0, rows) for i in range(len(parts))], parts), repeats)

    def update(self, params: Params) -> None:
        """Replace resident weights, see `Updatable.update`."""
        with self._turn:
            runner = self._open()
            others = runner.program.between.update(params)
            runner.program.settings.weights.update(others, runner.walker.threads)
            runner.drop_kinds()

    def compile_sharing(self, plan: Plan, params: Params) -> CpuExecutable:
        """Compile another plan sharing the same resident weights, see `SharesWeights.compile_sharing`."""
        with self._turn:
            self._open()
            return self._beside(plan, params)

    def prepare(self) -> None:
        """Compile, or load from the cache, the kernels for every number of rows; see `Preparable.prepare`."""
        with self._turn:
            self._open().compile_ahead()

    def close(self) -> None:
        """Drop weights and buffers."""
        self._runner = None

    def _open(self) -> Runner:
        if self._runner is None:
            raise DeviceError("this executable is closed", hint="compile the plan again")
        return self._runner

    def _check_positions(self, tokens: int) -> None:
        """Raise `GenerationError` if `tokens` tokens are more than a table of learned positions has."""
        positions = self._open().program.cut.positions
        if positions is not None and tokens > positions:
            raise GenerationError(
                f"{tokens} tokens exceed the {positions} positions that the model has learned",
                hint="shorten the prompt or generate fewer tokens",
            )
