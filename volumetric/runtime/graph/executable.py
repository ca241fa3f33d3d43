"""Inference through tensor graphs: any network on any device that runs graphs, with the memory of a sequence.

The path for everything that the fused plan does not cover. A graph is compiled for each number of rows, and for each
power of two of rows remembered; the memory of a sequence is on the host and goes to the device with every call.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Generator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import DeviceError, UnsupportedError
from volumetric.layers import StateSpec
from volumetric.network import Params
from volumetric.runtime.batch import greedy_each, run_each
from volumetric.runtime.device import MemoryReport, Piece, RunOptions
from volumetric.runtime.graph.build import GraphBuilder
from volumetric.runtime.graph.carried import Carried, CarryingScope, Memories, Past, room
from volumetric.runtime.graph.device import GraphDevice, GraphProgram
from volumetric.runtime.graph.network import emit_step
from volumetric.runtime.graph.passes import fuse_activations
from volumetric.runtime.graph.programs import ProgramCache
from volumetric.runtime.plan import DELAYS, Plan
from volumetric.runtime.profile import StepTime
from volumetric.runtime.state import check_input, check_room, check_trim, check_vocabulary
from volumetric.runtime.state_file import Held, as_numbers, restore_state, save_state

_Call: TypeAlias = tuple[int, int, bool]
"""Rows, room for rows remembered, and whether only the last row is wanted."""


class GraphState:
    """Position of a sequence, and what its layers remember."""

    def __init__(self, specs: Mapping[str, StateSpec]) -> None:
        self.position = 0
        self.memories: Memories = {}
        self._specs = specs

    def reset(self) -> None:
        """Forget everything."""
        self.position = 0
        self.memories = {}

    def trim(self, position: int) -> None:
        """Forget all rows from `position` on."""
        check_trim(self.position, position, self._specs)
        if position == 0:
            self.reset()
        elif position < self.position:
            self.position = position
            for past in self.memories.values():
                past.trim(position)

    def fork(self) -> GraphState:
        """Copy: both continue independently."""
        twin = GraphState(self._specs)
        twin.position, twin.memories = self.position, copy.deepcopy(self.memories)
        return twin

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.runtime.state_file`."""
        return save_state(self, self._specs)

    def read(self, key: str) -> NDArray[np.float32]:
        """Return what the state `key` holds."""
        past = self.memories[key]
        return past.first(1)[0] if self._specs[key].kind == "fixed" else past.first(self.position)

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all states."""
        for key, value in values.items():
            numbers = as_numbers(value, "float32")
            self.memories[key] = past = Past()
            past.append(0, numbers[None] if self._specs[key].kind == "fixed" else numbers)
        self.position = position


class GraphExecutable:
    """A layer-level plan on a device that runs graphs. Calls from several threads take turns.

    Parameters
    ----------
    plan : as `lower` wrote it
    params : its weights, which the device gets as float32
    graphs : the device

    Raises
    ------
    UnsupportedError : the options ask for activations or caches that are not float32
    """

    def __init__(self, plan: Plan, params: Params, options: RunOptions, graphs: GraphDevice) -> None:
        for name in ("compute", "kv_dtype"):
            if getattr(options, name) not in ("auto", "float32"):
                raise UnsupportedError(
                    f"this network has layers that run as tensor graphs, in float32, not with {name}="
                    f"{getattr(options, name)!r}",
                    hint="leave compute and kv_dtype at 'auto' or 'float32'",
                )
        delayed = next((step for step in plan.steps if step.op in DELAYS), None)
        if delayed is not None:
            raise UnsupportedError(
                f"the link {delayed.attrs['link']} has a delay, which only the reference device runs",
                hint="use device='reference'",
            )
        self.plan = plan
        self.options = options
        self._graphs = graphs
        self._turn = threading.Lock()
        self._store: Any = graphs.store()
        self._programs = ProgramCache()
        self._carried: dict[_Call, Carried] = {}
        self._rows = [spec for spec in plan.states.values() if spec.kind == "rows"]
        self._tail_alone = all(step.tail for step in plan.steps)
        for key in plan.params:
            self._store.put(key, params[key].values())
            params[key].release()

    @property
    def memory(self) -> MemoryReport:
        """Bytes of weights; of the scratch of all programs, where the device tells; of keys and values."""
        weights = sum(4 * prod(shape) for shape in self.plan.params.values())
        scratch = sum(getattr(program, "scratch_bytes", 0) for program in self._programs)
        row = sum(4 * spec.size for spec in self._rows)
        return MemoryReport(weights=weights, scratch=scratch, state_per_token=row)

    def new_state(self) -> GraphState:
        """Return an empty state."""
        return GraphState(self.plan.states)

    def restore(self, data: bytes) -> GraphState:
        """Return a state that goes on where the one went that `data` was saved of."""
        state = self.new_state()
        restore_state(state, data, self.plan.states, self.options.context)
        return state

    def run(self, pieces: Sequence[Piece]) -> list[NDArray[np.float32]]:
        """Append the rows of each piece to its state, one piece after the other."""
        return run_each(self, self.plan, pieces)

    def forward(self, state: GraphState, x: NDArray[Any], *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` and return the output for the last row, or for all."""
        x = check_input(self.plan, x)
        if x.dtype == np.int32:
            check_vocabulary(self.plan, x)
        check_room(state.position, len(x), self.options.context)
        count = len(x)
        if last_only and self._tail_alone:
            x = x[-1:]  # no row looks at another
        with self._turn:
            program, carried = self._compiled(len(x), state.position, last_only)
            fed = [np.asarray(feed(state.memories, state.position)) for feed in carried.feeds]
            y, *new = program.run([x, *fed])
        for name, rows in zip(carried.names, new, strict=True):
            at = 0 if name in carried.fixed else state.position
            state.memories.setdefault(name, Past()).append(at, rows)
        state.position += count
        return np.asarray(y, np.float32)

    def greedy(self, states: Sequence[GraphState], tokens: Sequence[int]) -> Generator[list[int]]:
        """Feed `tokens`, yield the arg max of each sequence, feed those, and so on."""
        return greedy_each(self, states, tokens)

    def step_times(self, state: GraphState, rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Refuse: raises `UnsupportedError`."""
        raise UnsupportedError("networks that run as tensor graphs have no profile", hint="measure whole calls instead")

    def close(self) -> None:
        """Give the device's memory back."""
        with self._turn:
            self._programs.clear()
            if self._store is not None:
                for key in list(self._store.keys()):
                    self._store.drop(key)
            self._store = None

    def _compiled(self, rows: int, position: int, last_only: bool) -> tuple[GraphProgram, Carried]:
        """Return the program for so many rows after so many others, and what goes in and out beside the rows."""
        if self._store is None:
            raise DeviceError("the executable is closed", hint="compile the plan again")
        call = rows, room(position) if self._rows else 0, last_only
        return self._programs.get(call, lambda: self._compile(*call)), self._carried[call]

    def _compile(self, rows: int, past: int, last_only: bool) -> GraphProgram:
        plan, work, carried = self.plan, GraphBuilder(), Carried(past)
        value = plan.values[plan.inputs[0]]
        values = {plan.inputs[0]: work.input("input", (rows, *value.shape[1:]), value.dtype)}
        base = CarryingScope(work=work, param=work.stored, path="", carried=carried)

        def read(i: int, tail: bool) -> int:
            of = values[i]
            length = work.shape(of)[0]
            ids = work.tensors[of].dtype == "int32"
            return work.part(of, 0, length - 1, length) if tail and not ids else of

        for step in plan.steps:
            tail = last_only and step.tail
            values[step.outputs[0]] = emit_step(base, step, [read(i, tail) for i in step.inputs])
        y = read(plan.outputs[0], last_only)
        graph = fuse_activations(work.finish([y, *carried.outputs]))
        self._carried[rows, past, last_only] = carried
        return self._graphs.compile(graph, self._store)
