"""GpuExecutable: a fused plan with resident weights, run by replaying recorded commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import GenerationError, UnsupportedError
from volumetric.kernels.gpu import elementwise
from volumetric.kernels.gpu.attention import AttentionShape
from volumetric.kernels.gpu.dispatch import power_of_two
from volumetric.network import Params
from volumetric.runtime.batch import check_batch, forward_each, greedy_each, run_each
from volumetric.runtime.device import MemoryReport, Piece, RunOptions
from volumetric.runtime.gpu.batch import Batches, can_slice
from volumetric.runtime.gpu.commands import Command, Copy, Executor, Pass, PlainExecutor
from volumetric.runtime.gpu.context import Call, GpuContext
from volumetric.runtime.gpu.decoding import TokenLoop
from volumetric.runtime.gpu.native import NativeExecutor
from volumetric.runtime.gpu.record import Frame, Recorder, StateCalls
from volumetric.runtime.gpu.residency import Residency
from volumetric.runtime.gpu.scratch import Scratch, row_bytes
from volumetric.runtime.gpu.single import SingleRows
from volumetric.runtime.gpu.state import GpuState
from volumetric.runtime.gpu.tuning import tune
from volumetric.runtime.plan import Plan
from volumetric.runtime.profile import StepTime
from volumetric.runtime.state import check_input, check_room, check_vocabulary
from volumetric.runtime.state_file import restore_state

_SMALLEST_BUCKET = 16


class GpuExecutable:
    """A plan bound to weights on one GPU.

    Parameters
    ----------
    context : the open GPU
    plan : fused plan
    params : weights of the network
    options : how to run
    portable : encode with plain wgpu-py calls instead of prepared native ones

    Raises
    ------
    DeviceError : weights or scratch exceed the GPU
    UnsupportedError : the plan or the options hold something that has no GPU form
    """

    def __init__(
        self, context: GpuContext, plan: Plan, params: Params, options: RunOptions, *, portable: bool = False
    ) -> None:
        if options.kv_dtype == "int8":
            raise UnsupportedError(
                "GPUs have no form of a cache in int8", hint="use kv_dtype='float16', or device='cpu'"
            )
        if options.kv_dtype == "auto":
            options = dataclasses.replace(options, kv_dtype=_storage(plan, params))
        self.context = context
        self.plan = plan
        self.options = options
        self.executor: Executor = PlainExecutor(context) if portable else NativeExecutor(context)
        self._shapes = _attention_shapes(plan, options)
        self.weights = Residency(context, params)
        whole = any(not (shape.state and shape.causal) for shape in self._shapes.values())
        self.scratch = Scratch(context, plan, whole=whole, most=options.context)
        self._recorder = Recorder(
            context, plan, self.weights, self.scratch, self._shapes, int8=options.compute == "int8"
        )
        self.control = self.scratch.make(16, "control", uniform=True)
        self._tail_control = self.scratch.make(16, "tail control", uniform=True)
        self._tables = [
            (step.where, plan.params[step.params["weight"]][0] - step.attrs["offset"])
            for step in plan.steps
            if step.op == "position_embedding"
        ]
        self._readback: Any = None
        self._singles = SingleRows(self)
        self._recordings: dict[tuple[str, int], list[Call | StateCalls]] = {}
        self._picks: list[Call] = []
        self._batches: Batches | None = None
        self.loop: TokenLoop | None = None
        """The decoding loop that the control block belongs to now; None after a forward pass."""
        # Recording one row ahead uploads all weights, and finds early what the GPU cannot do.
        self._recording("decode", 1)

    @property
    def memory(self) -> MemoryReport:
        """Bytes on the GPU."""
        row = sum(2 * shape.cache_bytes // shape.context for shape in self._shapes.values() if shape.state)
        return MemoryReport(weights=self.weights.nbytes, scratch=self.scratch.nbytes, state_per_token=row)

    @property
    def decoded(self) -> frozenset[str]:
        """Parameters without a native layout; they are resident as float32."""
        return frozenset(self.weights.decoded)

    def new_state(self) -> GpuState:
        """Return an empty state with its caches.

        Raises
        ------
        DeviceError : the caches exceed a binding or the memory
        """
        shapes = {step.states["k"]: self._shapes[i] for i, step in enumerate(self.plan.steps) if step.states}
        return GpuState(self.context, self.plan, shapes)

    def restore(self, data: bytes) -> GpuState:
        """Return a state that goes on where the one went that `data` was saved of."""
        state = self.new_state()
        restore_state(state, data, self.plan.states, self.options.context)
        return state

    def run(self, pieces: Sequence[Piece]) -> list[NDArray[np.float32]]:
        """Append the rows of each piece to its state; pieces of one row share their products, others take turns."""
        if len(pieces) > 1 and all(len(piece.x) == 1 and piece.wanted != "none" for piece in pieces):
            rows = self.forward_batch([piece.state for piece in pieces], np.concatenate([piece.x for piece in pieces]))
            return list(rows[:, None])
        return run_each(self, self.plan, pieces)

    def forward(self, state: GpuState, x: NDArray[Any], *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` to `state` and return the output for the last row, or for all of them."""
        x = check_input(self.plan, x)
        if x.dtype == np.int32:
            check_vocabulary(self.plan, x)
        self.check_rows(state.position, len(x))
        self.loop = None
        found = []
        for start in range(0, len(x), self.scratch.rows):
            rows = min(self.scratch.rows, len(x) - start)
            last = start + rows == len(x)
            first = rows if last_only and not last else rows - 1 if last_only else 0
            found += self._chunk(state, x[start : start + rows], first)
            state.advance(rows)
        return np.concatenate(found)

    def forward_batch(self, states: Sequence[GpuState], x: NDArray[Any]) -> NDArray[np.float32]:
        """Append one row of `x` to each of `states`.

        Products read the weights once for up to `Batches.most` rows, in float32 sums of another order than a single
        row's: logits differ in their last bits from those of `forward`.
        """
        x = check_batch(self.plan, states, x, self.options.context)
        self.check_rows(max(state.position for state in states), 1)
        if len(states) == 1 or not can_slice(self.plan, self.context.alignment):
            return forward_each(self, states, x)
        self.loop = None
        if self._batches is None:
            self._batches = Batches(self, self._recorder)
        most = self._batches.most
        parts = [self._batches.forward(states[i : i + most], x[i : i + most]) for i in range(0, len(x), most)]
        return np.concatenate(parts)

    def greedy(self, states: Sequence[GpuState], tokens: Sequence[int]) -> Generator[list[int]]:
        """Feed `tokens`, yield the arg max of each sequence, feed those, and so on; of one sequence, two in flight.

        Raises
        ------
        UnsupportedError : the plan does not read token ids
        GenerationError : a context is full, a token is outside of the vocabulary, or logits allow no choice
        """
        if self.plan.values[self.plan.inputs[0]].dtype != "int32":
            raise UnsupportedError("greedy decoding needs a network that reads token ids")
        check_vocabulary(self.plan, check_input(self.plan, np.array(tokens)))
        return TokenLoop(self, states[0]).run(tokens[0]) if len(states) == 1 else greedy_each(self, states, tokens)

    def tune(self) -> None:
        """Search for faster cuts of the products of a token, for new states of all executables on this GPU.

        What is found is kept in the user's cache. Does nothing on software adapters and without timestamps.

        Raises
        ------
        DeviceError : no memory for a copy of the largest matrix
        """
        if self.context.software or "timestamp-query" not in self.context.features:
            return
        tune(self.context, self._recorder.products())
        self._recordings.pop(("decode", 1), None)

    def step_times(self, state: GpuState, rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """GPU time of the dispatches of a call by timestamps, see `kernel_times`; many rows count from position 0.

        Each kind runs by itself, so that kinds add up to more than the whole. Of more rows than the scratch memory
        takes at once, one chunk is measured.

        Raises
        ------
        UnsupportedError : the GPU has no timestamps
        """
        from volumetric.runtime.gpu.profile import kernel_times

        self.check_rows(state.position, 1)
        self.loop = None
        part, rows = ("decode", 1) if rows == 1 else ("body", min(rows, self.scratch.rows))
        times = kernel_times(self, state, part, rows, repeats=repeats)
        return [StepTime(label=time.label, count=time.count, seconds=time.seconds) for time in times]

    def close(self) -> None:
        """Free weights and scratch."""
        self._recordings.clear()
        self._picks.clear()
        self._batches = None
        if self._readback is not None:
            self.context.free(self._readback)
            self._readback = None
        self._singles.close()
        self.executor.close()
        self.weights.close()
        self.scratch.close()

    def check_rows(self, position: int, new: int) -> None:
        """Raise `GenerationError` unless `new` more rows fit the context and the tables of learned positions."""
        check_room(position, new, self.options.context)
        for where, positions in self._tables:
            if position + new > positions:
                raise GenerationError(
                    f"{position + new} tokens exceed the {positions} positions that {where} has learned",
                    hint="shorten the prompt or generate fewer tokens",
                )

    def write_control(self, buffer: Any, position: int, rows: int) -> None:
        """Set a control block."""
        self.context.write(buffer, np.array([position, rows, 0, position + rows], np.uint32))

    def decoding(self, state: GpuState) -> Pass:
        """One token: a row through the whole plan, arg max, and the next token and position set on the device."""
        key = (self, "greedy", 1)
        if key not in state.replays:
            state.replays[key] = self.executor.prepare([*self.calls(state, "decode", 1), *self._picking()])
        return Pass(state.replays[key], 1)

    def _picking(self) -> list[Call]:
        """Arg max of the output row."""
        if not self._picks:
            out = self.plan.outputs[0]
            width = self.plan.values[out].width
            winners = self.scratch.make(8 * elementwise.ARGMAX_GROUPS, "winners")
            ids = self.scratch.values[self.plan.inputs[0]]
            first = {"x": self.scratch.values[out], "winners": winners}
            second = {"winners": winners, "token": ids, "control": self.control}
            self._picks = [
                self.context.bind(elementwise.argmax(width=width, final=False), first),
                self.context.bind(elementwise.argmax(width=width, final=True), second),
            ]
        return self._picks

    def _chunk(self, state: GpuState, x: NDArray[Any], first: int) -> list[NDArray[np.float32]]:
        """Run one chunk; return the output of its rows from `first` on."""
        plan, scratch = self.plan, self.scratch
        rows = len(x)
        self.write_control(self.control, state.position, rows)
        self.write_input(x)
        out = plan.outputs[0]
        if rows == 1 and first == 0:
            return [self._output(out, self._singles.run(state))]
        part = "decode" if rows == 1 else "body"
        commands: list[Command] = [Pass(self.prepared(state, part, rows), rows)]
        if first == rows:
            self.executor.submit(commands)
            return []
        if not any(out in step.outputs for step in plan.steps if step.tail):
            return [self.fetch(commands, out, first, rows - first)]
        found = []
        for start in range(first, rows, scratch.tail_rows):
            count = min(scratch.tail_rows, rows - start)
            self.write_control(self._tail_control, state.position + start, count)
            for value, target in scratch.gathered.items():
                size = row_bytes(plan.values[value])
                commands.append(Copy(scratch.values[value], start * size, target, 0, count * size))
            commands.append(Pass(self.prepared(state, "tail", count), count))
            found.append(self.fetch(commands, out, 0, count))
            commands = []
        return found

    def write_input(self, x: NDArray[Any]) -> None:
        """Put rows where the plan reads its input."""
        value = self.plan.inputs[0]
        flat = x.reshape(len(x), -1)
        columns = row_bytes(self.plan.values[value]) // 4
        if columns != flat.shape[1]:
            flat = np.pad(flat, ((0, 0), (0, columns - flat.shape[1])))
        self.context.write(self.scratch.values[value], flat)

    def fetch(self, commands: list[Command], value: int, first: int, rows: int) -> NDArray[np.float32]:
        """Submit, and return rows of a value."""
        if rows == 0:
            self.executor.submit(commands)
            return np.empty((0, *self.plan.values[value].shape[1:]), np.float32)
        size = row_bytes(self.plan.values[value])
        if self._readback is None or self._readback.size < rows * size:
            if self._readback is not None:
                self.context.free(self._readback)
            self._readback = self.context.buffer(rows * size, "results", read=True)
        copy = Copy(self.scratch.values[value], first * size, self._readback, 0, rows * size)
        number = self.executor.submit([*commands, copy])
        data = self.executor.read(self._readback, rows * size, number)
        return self._output(value, np.frombuffer(data, np.float32).reshape(rows, size // 4))

    def _output(self, value: int, padded: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of a value without their padding, in its shape, as a fresh array."""
        about = self.plan.values[value]
        return np.ascontiguousarray(padded[:, : about.width]).reshape(len(padded), *about.shape[1:])

    def _recording(self, part: str, rows: int) -> list[Call | StateCalls]:
        """Dispatches of the body, the tail, or both for one row; once for each size that changes the kernels."""
        key = (part, rows)
        if key not in self._recordings:
            steps = [(i, s) for i, s in enumerate(self.plan.steps) if part == "decode" or s.tail == (part == "tail")]
            values = self.scratch.values
            if part == "tail":
                values = {**values, **self.scratch.gathered}
            control = self._tail_control if part == "tail" else self.control
            self._recordings[key] = self._recorder.record(steps, Frame(rows=rows, control=control, values=values))
        return self._recordings[key]

    def prepared(self, state: GpuState, part: str, rows: int) -> Any:
        """What a `Pass` over the caches of a state holds; `rows` are rounded up to what shares kernels."""
        bucket = rows if rows == 1 else max(_SMALLEST_BUCKET, power_of_two(rows))
        key = (self, part, bucket)
        if key not in state.replays:
            state.replays[key] = self.executor.prepare(self.calls(state, part, bucket))
        return state.replays[key]

    def calls(self, state: GpuState, part: str, rows: int) -> list[Call]:
        """Dispatches of ``"body"``, ``"tail"`` or ``"decode"`` (both, for one row) over the caches of a state."""
        calls: list[Call] = []
        for entry in self._recording(part, rows):
            calls += [entry] if isinstance(entry, Call) else entry(state)
        return calls


def _storage(plan: Plan, params: Params) -> Literal["float32", "float16"]:
    """Keys and values in float16 where any weight has less than 32 bits, else in float32.

    They are half the bytes to read for each token, and move the top logits of SmolLM2 by 0.01; whoever keeps weights in
    float32 wants its precision.
    """
    return "float16" if any(params[key].scheme.dtype.bits < 32 for key in plan.params) else "float32"


def _attention_shapes(plan: Plan, options: RunOptions) -> dict[int, AttentionShape]:
    """Shape of the attention of each attend step, by the step's index."""
    found = {}
    for i, step in enumerate(plan.steps):
        if step.op != "attend":
            continue
        attrs = step.attrs
        found[i] = AttentionShape(
            heads=attrs["heads"],
            kv_heads=attrs["kv_heads"],
            head_dim=attrs["head_dim"],
            context=options.context,
            scale=attrs["scale"],
            causal=attrs["causal"],
            window=attrs["window"],
            softcap=attrs["softcap"],
            qk_norm="q_norm" in step.params,
            qk_norm_eps=attrs["qk_norm_eps"],
            qk_norm_unit_offset=attrs["qk_norm_unit_offset"],
            rotary=0 if attrs["rope"] is None else attrs["rope"].dim,
            state=bool(step.states),
            half=bool(step.states) and options.kv_dtype == "float16",  # without a state none are kept
        )
    return found
