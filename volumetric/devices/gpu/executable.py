"""GpuExecutable: a network with resident weights, run by replaying recordings that depend only on numbers of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError, GenerationError, UnsupportedError
from volumetric.devices.gpu.attending import Attending, attention_shapes
from volumetric.devices.gpu.calls import Place, schedule
from volumetric.devices.gpu.commands import Executor
from volumetric.devices.gpu.context import GpuContext
from volumetric.devices.gpu.cores import GpuCores, rows_of_cores, steps
from volumetric.devices.gpu.decoding import Decoder
from volumetric.devices.gpu.graph.graphs import GpuGraphs
from volumetric.devices.gpu.kernels.attention import PAGE
from volumetric.devices.gpu.kernels.dispatch import Rows
from volumetric.devices.gpu.kernels.formats import FORMATS
from volumetric.devices.gpu.native import NativeExecutor
from volumetric.devices.gpu.pages import PagePool
from volumetric.devices.gpu.picking import Picked, Picks, Wanted
from volumetric.devices.gpu.profile import call_times
from volumetric.devices.gpu.record import Recorder
from volumetric.devices.gpu.recordings import Recordings
from volumetric.devices.gpu.residency import Residency
from volumetric.devices.gpu.results import Results
from volumetric.devices.gpu.room import Room
from volumetric.devices.gpu.scratch import Scratch
from volumetric.devices.gpu.state import GpuState
from volumetric.devices.gpu.tuning import tune
from volumetric.network import OUTPUT, Params
from volumetric.run.batch import Handed, Part, Span, check_once, check_pieces, greedy_each, taken
from volumetric.run.device import Chooser, Constant, Found, Given, MemoryReport, Piece, RunOptions, output_of
from volumetric.run.graph.segments import Cut
from volumetric.run.narrowing import narrowed_params
from volumetric.run.plan import Plan
from volumetric.run.profile import StepTime
from volumetric.run.state import check_tokens
from volumetric.run.state_file import restore_state


class GpuExecutable:
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
    like : executable to share matrices of the same sources with; states of either serve both

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
        like: GpuExecutable | None = None,
    ) -> None:
        if options.kv_dtype == "int8":
            raise UnsupportedError(
                "GPUs have no form of a cache in int8", hint="use kv_dtype='float16', or device='cpu'"
            )
        if options.kv_dtype == "auto":
            options = dataclasses.replace(options, kv_dtype=_storage(plan, params))
        self.context = context
        self.plan, self._native = plan, native
        self._closed = False
        self._cut = cut = Cut(plan, native, parted=GpuGraphs.parted)
        self.graph = graph = cut.graph
        parts = cut.parts
        self.options = options
        shapes = attention_shapes(graph, options)
        self.weights = Residency(context, params, sources=sources, like=None if like is None else like.weights)
        alone = any(not (shape.state and shape.causal) for shape in shapes.values())
        most = options.context if alone else rows_of_cores(parts, options.context, context.caps, whole=graph.whole)
        chain = dataclasses.replace(graph, nodes=steps(graph, parts))
        self.scratch = Scratch(context, chain, most=most, least=options.context if alone else 1)
        attends = (node for node in graph.nodes if node.op == "attend")
        cache_shapes = {key: shapes[node.outputs[0]] for node in attends for key in graph.states(node).values()}
        fixed = {key: spec for key, spec in plan.states.items() if spec.kind == "fixed"}
        self.pool = PagePool(context, cache_shapes, options.context, fixed) if like is None else like.pool
        self._row_bytes = sum(2 * shape.page_bytes // shape.page for shape in shapes.values() if shape.state)
        attention = Attending(shapes, self.scratch, context.caps)
        self._recorder = Recorder(
            graph, self.weights, self.scratch, attention, int8=options.compute == "int8", tunings=context.tunings
        )
        self._executor = executor or NativeExecutor(context)
        self._cores = GpuCores(context, graph, parts, self.weights, self._forget)
        self.recordings = Recordings(
            context, self._executor, self.scratch, self._recorder, cut, self._cores, self._buffers
        )
        self._results = Results(self.recordings)
        self._room = Room(graph, options.context, self.scratch.rows)
        self._decoder = Decoder(self.recordings, self.pool, self._room.check)
        # Recording one row ahead uploads all weights, and detects early if the GPU cannot run the graph.
        with self.weights.meter:
            self.recordings.one_row()
        self.pool.users.append(self._unbind)

    @property
    def memory(self) -> MemoryReport:
        """Bytes on the GPU."""
        scratch = self.scratch.nbytes + self._cores.nbytes + self.recordings.drawing.nbytes
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

    def run(self, pieces: Sequence[Piece]) -> list[Found]:
        """Append the rows of each sequence to its state, all in one submission if the scratch memory has room.

        Sums depend on the number of rows: outputs of calls of different sizes differ in their last bits.

        Raises
        ------
        DeviceError : keys and values exceed the GPU's memory; no state has changed then
        """
        with self.pool.lock:
            parts, calls = self._scheduled(pieces)
            results = Handed(self.plan, parts)
            for spans in calls:
                placed, inputs = self._begin(parts, spans)
                output_rows = results.wanted(spans)
                numbers = {self._cut.outputs[name]: rows for name, rows in output_rows.items()}
                outputs = self._results.run(*placed, inputs, numbers)
                _advance(parts, spans)
                results.take(spans, {name: outputs[self._cut.outputs[name]] for name in output_rows})
            return results.found

    def pick(self, pieces: Sequence[Piece], choosers: Sequence[Wanted]) -> list[Picked]:
        """Append rows as `run` does, and sample tokens from the last ones, see `Drawing.pick`."""
        with self.pool.lock:
            parts, calls = self._scheduled(pieces)
            picks = Picks(self.recordings.drawing, parts, choosers)
            self._decoder.make_room(min(len(parts), self.recordings.most_singles), picks.changes)
            for spans in calls:
                placed, inputs = self._begin(parts, spans)
                for codes in self._results.pick(*placed, inputs, picks.ends(spans)):
                    picks.take(codes)
                _advance(parts, spans)
            return picks.picked

    def _scheduled(self, pieces: Sequence[Piece]) -> tuple[list[Part], list[list[Span]]]:
        """Check the rows, reserve room for them, and split them into calls of the device."""
        parts = check_pieces(self.plan, pieces, self.options.context)
        for part in parts:
            self._check_owner(part.state)
            self._room.check(part.state.position, len(part))
            self._room.check_together(len(part))
        ends = [(part.state, part.state.position + len(part)) for part in parts]
        self.pool.ensure([(state.held, state.position, end) for state, end in ends], self.scratch.rows)
        recordings, lengths = self.recordings, [len(part) for part in parts]
        return parts, schedule(
            lengths, self.scratch.rows, apart=recordings.apart, whole=recordings.whole, each=self.graph.piece
        )

    def _begin(
        self, parts: Sequence[Part], spans: Sequence[Span]
    ) -> tuple[tuple[Rows, NDArray[np.uint32]], dict[int, Any]]:
        """Write a call to the control block; return its rows, and the values they read."""
        placed = self._place_rows([parts[span.piece].state for span in spans], [len(span) for span in spans])
        return placed, {i: taken(parts, spans, name) for name, i in self._cut.inputs.items()}

    def forward(self, state: GpuState, x: Given, *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` to `state` and return the output for the last row, or for all rows."""
        return output_of(self.run([Piece(state, x, "last" if last_only else "all", (OUTPUT,))])[0])

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

    def draws(self, choosers: Sequence[Chooser | None]) -> bool:
        """Whether the GPU can sample the tokens of such sequences together, see `Drawing.draws`."""
        few = len(choosers) <= self.recordings.most_singles
        return few and all(self.recordings.drawing.loops(chooser) for chooser in choosers)

    @property
    def picks(self) -> bool:
        """Whether `pick` samples on the GPU; networks whose calls have whole sequences return all logits."""
        return not self.recordings.whole and self._results.draws(self.recordings.output)

    def drawn(
        self,
        states: Sequence[GpuState],
        tokens: Sequence[int],
        choosers: Sequence[Chooser | None],
        constant: Constant | None = None,
    ) -> Generator[list[int]]:
        """Like `greedy`, with sampled tokens, see `Drawing.drawn`.

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

    def tune(self) -> None:
        """Search for faster tunings of the products of a token, used by new states of all executables on this GPU.

        Results are saved in the user's cache. Does nothing on software adapters and without timestamps.

        Raises
        ------
        DeviceError : no memory for a copy of the largest matrix
        """
        if self.context.software or "timestamp-query" not in self.context.features:
            return
        with self.pool.lock:
            tune(self.context, self._recorder.products())
            self._forget()

    def step_times(self, states: Sequence[GpuState], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """GPU time of the dispatches of a call, see `kernel_times`; several rows are measured from position 0.

        Each kind runs alone, so kinds add up to more than the whole. Of more rows than scratch holds, one chunk runs.

        Raises
        ------
        UnsupportedError : the GPU has no timestamps
        """
        for state in states:
            self._room.check(state.position, 1)
        most = max(1, self.scratch.rows // len(states))
        part, rows = ("whole", 1) if rows == 1 else ("body", min(rows, most))
        return self.kernel_times(states, part, rows, repeats=repeats)

    def kernel_times(
        self, states: Sequence[GpuState], part: str = "whole", rows: int = 1, *, repeats: int = 20
    ) -> list[StepTime]:
        """GPU time of each kind of dispatch of one call, see `call_times`. The contents of the states are overwritten.

        Parameters
        ----------
        part : ``"whole"`` or ``"body"``, the part for rows without an output
        rows : rows of each state, at position 0 for more than one, else at the states' positions

        Raises
        ------
        UnsupportedError : the GPU has no timestamps
        """
        with self.pool.lock:
            for state in states:
                self._check_owner(state)
            positions = [state.position for state in states]
            if rows > 1:
                for state in states:
                    state.trim(0)
            try:
                counted, _ = self._place_rows(states, [rows] * len(states))
                return call_times(self.context, self.recordings.calls(part, counted), counted, repeats)
            finally:
                for state, position in zip(states, positions, strict=True):
                    state.advance(position - state.position)

    def update(self, params: Params) -> None:
        """Replace resident weights, see `Updatable.update`."""
        self.weights.update(params)

    def beside(self, plan: Plan, params: Params) -> GpuExecutable:
        """Compile another plan sharing the same resident weights and states, see `Sharing.beside`."""
        native = narrowed_params(params, tuple(FORMATS))
        with self.pool.lock:
            return GpuExecutable(self.context, plan, self._native, native, self.options, sources=params, like=self)

    def close(self) -> None:
        """Free weights, scratch and pages."""
        with self.pool.lock:
            if self._closed:
                return
            self._closed = True
            self._unbind()
            self._results.close()
            self._executor.close()
            self.recordings.drawing.close()
            self._cores.close()
            self.weights.close()
            self.scratch.close()
            self.pool.close(self._unbind)

    def _place_rows(self, states: Sequence[GpuState], counts: Sequence[int]) -> tuple[Rows, NDArray[np.uint32]]:
        """Reserve so many rows for each state, and describe the call in the control block."""
        self._reserve(states, counts)
        self._cores.prepare(counts)
        pairs = zip(states, counts, strict=True)
        return self.recordings.place(
            [Place(state.held.line, state.position, count, self.pool.near(state.held)) for state, count in pairs]
        )

    def _reserve(self, states: Sequence[GpuState], counts: Sequence[int]) -> None:
        """Reserve so many more rows for each state; if there is not enough for all, none is kept."""
        try:
            self.pool.reserve(
                (state.held, state.position, state.position + n) for state, n in zip(states, counts, strict=True)
            )
        except DeviceError:
            for state in states:
                state.trim(state.position)
            raise

    def _buffers(self) -> dict[str, Any]:
        """Buffers named in recordings."""
        return {**self.scratch.buffers, **self.weights.buffers, **self.pool.named, **self._cores.buffers}

    def _unbind(self) -> None:
        """Release all bindings of buffers."""
        self._results.drop()
        self._decoder.drop()
        self.recordings.unbind()

    def _forget(self) -> None:
        """Drop all recordings, too: they are outdated."""
        self._unbind()
        self.recordings.forget()

    def _check_states(self, states: Sequence[GpuState]) -> None:
        """Check states that continue together."""
        check_once(states)
        for state in states:
            self._check_owner(state)

    def _check_owner(self, state: GpuState) -> None:
        if self._closed:
            raise DeviceError("this executable is closed", hint="compile the plan again")
        if state.pool is not self.pool:
            raise GenerationError("the state belongs to another executable", hint="use one of this one's new_state()")


def _advance(parts: Sequence[Part], spans: Sequence[Span]) -> None:
    for span in spans:
        parts[span.piece].state.advance(len(span))


def _storage(plan: Plan, params: Params) -> Literal["float32", "float16"]:
    """Keys and values in float16 if any weight has less than 32 bits, else in float32.

    float16 halves the bytes read for each token, and moves the top logits of SmolLM2 by 0.01.
    """
    return "float16" if any(params[key].scheme.dtype.bits < 32 for key in plan.params) else "float32"
