"""GpuExecutable: a network with resident weights, run by replaying recordings that depend only on numbers of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError, GenerationError, UnsupportedError
from volumetric.devices.gpu.call_measuring import MeasuresCalls
from volumetric.devices.gpu.call_outputs import CallRunner
from volumetric.devices.gpu.call_schedule import SequenceSpan, schedule_calls
from volumetric.devices.gpu.encode import RowRecorder
from volumetric.devices.gpu.gpu_commands import Executor
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.gpu_state import GpuState
from volumetric.devices.gpu.gpu_subgraphs import GpuSubgraphs, row_nodes_and_subgraphs, rows_of_subgraphs
from volumetric.devices.gpu.graph.graphs import GpuGraphs
from volumetric.devices.gpu.kernels.attention import PAGE
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.page_pool import PagePool
from volumetric.devices.gpu.paged_attention import (
    AttentionBuffers,
    attends_halves,
    attention_shapes,
    seeing_together,
    with_kv_dtype,
)
from volumetric.devices.gpu.pooled_texts import TextPooling
from volumetric.devices.gpu.recorded_calls import RecordsCalls
from volumetric.devices.gpu.recording_cache import RecordingCache
from volumetric.devices.gpu.row_limits import UNLIMITED, CallLimits, RowLimits
from volumetric.devices.gpu.token_loop import Decoder
from volumetric.devices.gpu.token_picks import Picked, TokenPicks, Wanted
from volumetric.devices.gpu.value_buffers import ValueBuffers, rows_together
from volumetric.devices.gpu.weight_buffers import WeightBuffers
from volumetric.network import OUTPUT, Params
from volumetric.run.call_batch import (
    CallOutputs,
    CheckedRows,
    RowSpan,
    advance_states,
    check_once,
    check_sequence_rows,
    gather_rows_of_spans,
    greedy_each,
)
from volumetric.run.device import (
    Constant,
    MemoryReport,
    RowInputs,
    RowOutputs,
    RunOptions,
    SequenceRows,
    TokenSampler,
    output_of,
)
from volumetric.run.graph.partition import Partition
from volumetric.run.plan import Plan
from volumetric.run.regroup import regroup_params
from volumetric.run.sequence_state import check_tokens
from volumetric.run.state_file import restore_state
from volumetric.run.text_pooling import Pooling, check_whole_texts


class GpuExecutable(RecordsCalls, MeasuresCalls):
    """A network bound to weights on one GPU.

    Parameters
    ----------
    context : the open GPU
    plan : as `lower` wrote it
    native : row operations
    params : weights of the network
    options : how to run
    executor : submits commands; default: prepared native calls
    sources : the original weights, before their groups were narrowed
    shared_with : executable to share matrices of the same sources with; states of either serve both
    limits : most rows of a call, and of its tail

    Raises
    ------
    DeviceError : weights or scratch exceed the GPU
    UnsupportedError : the graph or the options contain something without a GPU implementation
    """

    def __init__(
        self,
        context: GpuContext,
        plan: Plan,
        native: frozenset[str],
        params: Params,
        options: RunOptions,
        *,
        executor: Executor | None = None,
        sources: Params | None = None,
        shared_with: GpuExecutable | None = None,
        limits: CallLimits = UNLIMITED,
    ) -> None:
        self.context = context
        self.plan: Plan = plan
        self._native = native
        self._closed = False
        self._partition = partition = Partition(plan, native, parted=GpuGraphs.parted)
        self.graph = graph = partition.graph
        parts = partition.segments
        self.options = options = with_kv_dtype(options, plan, params)
        shapes = attention_shapes(graph, options)
        self.weights: WeightBuffers = WeightBuffers(
            context, params, sources=sources, shared_with=None if shared_with is None else shared_with.weights
        )
        alone = any(not (shape.state and shape.causal) for shape in shapes.values())
        most, caps = options.context, context.caps
        if not alone:
            most = rows_of_subgraphs(parts, most, caps, whole=graph.whole_sequences)
        elif all(part.graph is None for part in parts):
            most = rows_together(graph, most, caps.max_binding)
            shapes = seeing_together(shapes, most)
        most = most if alone or limits.rows is None else min(most, limits.rows)
        chain = dataclasses.replace(graph, nodes=row_nodes_and_subgraphs(graph, parts))
        self.scratch: ValueBuffers = ValueBuffers(
            context, chain, most=most, least=options.context if alone else 1, tail=limits.tail_rows
        )
        attends = (node for node in graph.nodes if node.op == "attend")
        cache_shapes = {key: shapes[node.outputs[0]] for node in attends for key in graph.states(node).values()}
        fixed = {key: spec for key, spec in plan.states.items() if spec.kind == "fixed"}
        pool = PagePool(context, cache_shapes, options.context, fixed) if shared_with is None else shared_with.pool
        self.pool: PagePool = pool
        self._row_bytes = sum(2 * shape.page_bytes // shape.page for shape in shapes.values() if shape.state)
        attention = AttentionBuffers(shapes, self.scratch, context.caps, halves=attends_halves(options, context.caps))
        self._recorder = RowRecorder(
            graph, self.weights, self.scratch, attention, compute=options.compute, tunings=context.tunings
        )
        self._executor = executor or context.new_executor()
        self._subgraphs = GpuSubgraphs(context, graph, parts, self.weights, self._forget, params, options)
        self.recordings: RecordingCache = RecordingCache(
            context, self._executor, self.scratch, self._recorder, partition, self._subgraphs, self._buffers
        )
        self._results = CallRunner(self.recordings)
        self._pooling = TextPooling(self.recordings, options.context)
        self._room = RowLimits(graph, options.context, self.scratch.rows)
        self._decoder = Decoder(self.recordings, self.pool, self._room.check)
        # Recording one row ahead uploads all weights, and detects early if the GPU cannot run the graph.
        with self.weights.meter:
            self.recordings.one_row()
        self.pool.users.append(self._drop_bindings)

    @property
    def memory(self) -> MemoryReport:
        """Bytes on the GPU."""
        scratch = self.scratch.nbytes + self._subgraphs.nbytes + self.recordings.drawing.nbytes
        return MemoryReport(
            weights=self.weights.nbytes,
            scratch=scratch,
            state_per_token=self._row_bytes,
            state_fixed=self.pool.fixed.line_bytes,
            block=PAGE,
        )

    @property
    def decoded(self) -> frozenset[str]:
        """Parameters without a native layout; they are stored as float32."""
        return frozenset(self.weights.decoded)

    def new_state(self) -> GpuState:
        """Return an empty state. It takes memory as it grows."""
        return GpuState(self.pool, self.plan.states)

    def restore(self, data: bytes) -> GpuState:
        """Return a state that continues from saved `data`."""
        state = self.new_state()
        restore_state(state, data, self.plan.states, self.options.context)
        return state

    def run(self, pieces: Sequence[SequenceRows]) -> list[RowOutputs]:
        """Append the rows of each sequence to its state, all in one submission if the scratch memory has room.

        Sums depend on the number of rows: outputs of calls of different sizes differ in their last bits.

        Raises
        ------
        DeviceError : keys and values exceed the GPU's memory; no state has changed then
        """
        with self.pool.lock:
            parts, calls = self._schedule(pieces)
            results = CallOutputs(self.plan, parts)
            for spans in calls:
                placed, inputs = self._begin(parts, spans)
                output_rows = results.requested_rows(spans)
                numbers = {self._partition.outputs[name]: rows for name, rows in output_rows.items()}
                outputs = self._results.run(*placed, inputs, numbers)
                advance_states(parts, spans)
                results.store_rows(spans, {name: outputs[self._partition.outputs[name]] for name in output_rows})
            return results.by_sequence

    def sample(self, pieces: Sequence[SequenceRows], choosers: Sequence[Wanted]) -> list[Picked]:
        """Append rows as `run` does, and sample tokens from the last ones, see `TokenSampling.sample`."""
        with self.pool.lock:
            parts, calls = self._schedule(pieces)
            picks = TokenPicks(self.recordings.drawing, parts, choosers)
            self._decoder.reserve_rows(min(len(parts), self.recordings.most_singles), picks.changes)
            for spans in calls:
                placed, inputs = self._begin(parts, spans)
                for codes in self._results.pick(*placed, inputs, picks.ends(spans)):
                    picks.add_codes(codes)
                advance_states(parts, spans)
            return picks.tokens

    def _schedule(self, pieces: Sequence[SequenceRows]) -> tuple[list[CheckedRows], list[list[RowSpan]]]:
        """Check the rows, reserve room for them, and split them into calls of the device."""
        parts = check_sequence_rows(self.plan, pieces, self.options.context)
        for part in parts:
            self._check_owner(part.state)
            self._room.check(part.state.position, len(part))
            self._room.check_together(len(part))
        ends = [(part.state, part.state.position + len(part)) for part in parts]
        self.pool.ensure([(state.pages, state.position, end) for state, end in ends], self.scratch.rows)
        recordings, lengths = self.recordings, [len(part) for part in parts]
        return parts, schedule_calls(
            lengths,
            self.scratch.rows,
            apart=recordings.apart,
            whole=recordings.whole,
            each=self.graph.max_rows,
            block=recordings.block,
        )

    def _begin(
        self, parts: Sequence[CheckedRows], spans: Sequence[RowSpan]
    ) -> tuple[tuple[CallRows, NDArray[np.uint32]], dict[int, Any]]:
        """Write a call to the control block; return its rows, and the values they read."""
        placed = self._place_rows([parts[span.sequence].state for span in spans], [len(span) for span in spans])
        return placed, {i: gather_rows_of_spans(parts, spans, name) for name, i in self._partition.inputs.items()}

    def forward(self, state: GpuState, x: RowInputs, *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` to `state` and return the output for the last row, or for all rows."""
        return output_of(self.run([SequenceRows(state, x, "last" if last_only else "all", (OUTPUT,))])[0])

    @property
    def can_pool(self) -> bool:
        """Whether `pool_texts` supports this network: one without states, whose calls have whole texts."""
        recordings = self.recordings
        alone = recordings.whole and not recordings.apart and not self.plan.states
        return alone and self._pooling.rows >= self.options.context

    def pool_texts(
        self, texts: Sequence[RowInputs], modes: Sequence[Pooling], *, output: str = OUTPUT, skipped: int = 0
    ) -> NDArray[np.float32]:
        """Return a pooled row of an output for each text, see `PoolsTexts.pool_texts`.

        Raises
        ------
        UnsupportedError : the network has states, see `can_pool`
        """
        if not self.can_pool:
            raise UnsupportedError("this GPU pools only texts that leave no state", hint="use run")
        with self.pool.lock:
            self._check_open()
            checked = check_whole_texts(self.plan, texts, self.options.context)
            self._room.check(0, max(checked.lengths))
            value = self._partition.outputs[output]
            return self._pooling.run(checked, self._partition.inputs, value, modes, skipped)

    def greedy(
        self, states: Sequence[GpuState], tokens: Sequence[int], constant: Constant | None = None
    ) -> Generator[list[int]]:
        """Feed `tokens`, yield the argmax of each sequence, feed those, and so on, two in flight.

        Raises
        ------
        UnsupportedError : the network does not read token ids
        GenerationError : a context is full, a token is outside of the vocabulary, or logits allow no choice
        """
        more = check_tokens(self.plan, tokens, constant)
        self._check_states(states)
        if len(states) > self.recordings.most_singles:
            return greedy_each(self, self.plan, states, tokens, constant)
        return self._decoder.run(states, tokens, more)

    def can_sample(self, choosers: Sequence[TokenSampler | None]) -> bool:
        """Whether the GPU can sample the tokens of such sequences together, see `TokenSampling.can_sample`."""
        few = len(choosers) <= self.recordings.most_singles
        return few and all(self.recordings.drawing.supports_loop(chooser) for chooser in choosers)

    @property
    def can_pick(self) -> bool:
        """Whether `pick` samples on the GPU; networks whose calls have whole sequences return all logits."""
        return not self.recordings.whole and self._results.draws(self.recordings.output)

    def sample_loop(
        self,
        states: Sequence[GpuState],
        tokens: Sequence[int],
        choosers: Sequence[TokenSampler | None],
        constant: Constant | None = None,
    ) -> Generator[list[int]]:
        """Like `greedy`, with sampled tokens, see `TokenSampling.sample_loop`.

        The host samples rows whose 64-bit integer sums are too close to a border to match float64 with certainty.

        Raises
        ------
        UnsupportedError : these cannot be sampled on the GPU, see `draws`
        """
        more = check_tokens(self.plan, tokens, constant)
        self._check_states(states)
        if len(states) > self.recordings.most_singles:
            raise UnsupportedError(f"this GPU samples at most {self.recordings.most_singles} sequences together")
        return self._decoder.run(states, tokens, more, choosers)

    def update(self, params: Params) -> None:
        """Replace resident weights, see `Updatable.update`."""
        self.weights.update(params)

    def compile_sharing(self, plan: Plan, params: Params) -> GpuExecutable:
        """Compile another plan sharing the same resident weights and states, see `SharesWeights.compile_sharing`."""
        native = regroup_params(params, tuple(FORMATS))
        with self.pool.lock:
            return GpuExecutable(
                self.context, plan, self._native, native, self.options, sources=params, shared_with=self
            )

    def close(self) -> None:
        """Free weights, scratch and pages."""
        with self.pool.lock:
            if self._closed:
                return
            self._closed = True
            self._drop_bindings()
            self._results.close()
            self._pooling.close()
            self._executor.close()
            self.recordings.drawing.close()
            self._subgraphs.close()
            self.weights.close()
            self.scratch.close()
            self.pool.close(self._drop_bindings)

    def _place_rows(self, states: Sequence[GpuState], counts: Sequence[int]) -> tuple[CallRows, NDArray[np.uint32]]:
        """Reserve so many rows for each state, and describe the call in the control block."""
        self._reserve(states, counts)
        self._subgraphs.prepare(counts)
        spans = [
            SequenceSpan(state.pages.line, state.position, count, self.pool.control_block_pages(state.pages))
            for state, count in zip(states, counts, strict=True)
        ]
        return self.recordings.place_rows(spans)

    def _reserve(self, states: Sequence[GpuState], counts: Sequence[int]) -> None:
        """Reserve so many more rows for each state; if there is not enough for all, none is kept."""
        try:
            self.pool.reserve(
                (state.pages, state.position, state.position + n) for state, n in zip(states, counts, strict=True)
            )
        except DeviceError:
            for state in states:
                state.trim(state.position)
            raise

    def _buffers(self) -> dict[str, Any]:
        """Buffers named in recordings."""
        return {**self.scratch.buffers, **self.weights.buffers, **self.pool.named_buffers, **self._subgraphs.buffers}

    def _drop_bindings(self) -> None:
        """Release all bindings of buffers."""
        self._results.drop()
        self._decoder.drop()
        self.recordings.unbind()

    def _forget(self) -> None:
        """Drop all recordings, too: they are outdated."""
        self._drop_bindings()
        self.recordings.drop_all()

    def _check_states(self, states: Sequence[GpuState]) -> None:
        """Check states that continue together."""
        check_once(states)
        for state in states:
            self._check_owner(state)

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("this executable is closed", hint="compile the plan again")

    def _check_owner(self, state: GpuState) -> None:
        self._check_open()
        if state.pool is not self.pool:
            raise GenerationError("the state belongs to another executable", hint="use one of this one's new_state()")
