"""A graph bound to its memory: one native call on each thread for a run."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric._typing import Array
from volumetric.errors import ShapeError
from volumetric.kernels.cpu.graph.alone import run_alone
from volumetric.kernels.cpu.graph.operations import operation
from volumetric.kernels.cpu.steps import (
    BARRIER_WORD,
    CONTROL_WORDS,
    FIRST_ARGUMENT,
    OPERATION_WORD,
    SCRATCH_BYTES_WORD,
    SCRATCH_WORD,
    STEP_WORDS,
)
from volumetric.runtime.cpu.arena import address_of, aligned_zeros
from volumetric.runtime.cpu.compiling import Key, make_ready
from volumetric.runtime.cpu.governor import Governor
from volumetric.runtime.cpu.graph.placement import Placement, barriers
from volumetric.runtime.cpu.graph.steps import Address, Draft, GraphStep, Operation, append_steps
from volumetric.runtime.cpu.graph.store import CpuStore, aligned_array
from volumetric.runtime.cpu.team import TEAM
from volumetric.runtime.graph.ids import IdBound, id_bounds
from volumetric.runtime.graph.interpret import check_buffer, check_value
from volumetric.runtime.graph.ops import Graph, Tensor

_MEETING = 800.0
"""Nanoseconds that a barrier costs all threads together, more or less."""
_CALL = 4_000.0
"""Nanoseconds to hand a table to workers that are awake."""
_WAKING = 150_000.0
"""Work from which waking workers pays."""
_AWAKE = 1e-3
"""Seconds that workers surely stay awake after a run."""
_NUMBERS = itertools.count()
"""Names for what a governor compares: addresses are used again once a program is gone."""


@dataclass(frozen=True, slots=True)
class _End:
    """An input or output: its tensor, its place if it is copied, and the words to set if it is not."""

    tensor: Tensor
    view: Array | None
    words: Array
    offsets: Array
    ids: Sequence[IdBound] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """Steps that run as one: `count` rows of the table from `first`, or a Python function."""

    name: str
    address: int
    count: int
    work: float
    meetings: int
    host: Callable[[], None] | None = None


class CpuProgram:
    """A compiled graph. `run` may be called from several Python threads; calls take turns.

    Parameters
    ----------
    threads : threads that a run may use
    governor : chooses their number by what disturbs them, and runs of little work get one; None: always all
    """

    def __init__(self, graph: Graph, store: CpuStore, threads: int, governor: Governor | None) -> None:
        self.graph = graph
        self.threads = threads
        self._turn = threading.Lock()
        self._governor = governor
        self._last = 0.0
        self._buffers = {key: check_buffer(tensor, store.buffers) for key, tensor in graph.keyed.items()}
        draft = Draft(graph)
        for node in graph.nodes:
            append_steps(draft, node)
        self._tables = draft.tables
        placement = Placement(draft)
        self._placement = placement
        self._arena = aligned_zeros(placement.arena + 64)
        self._constants = {placement.of[i]: _constant(graph.tensors[i], v) for i, v in graph.constants.items()}
        self._control = np.zeros(CONTROL_WORDS, np.int64)
        each = -(-draft.scratch // 4096) * 4096 + 64
        self._scratch = aligned_zeros(each * threads)
        self._control[SCRATCH_WORD] = address_of(self._scratch)
        self._control[SCRATCH_BYTES_WORD] = each
        self._control_address = address_of(self._control)
        self._words = np.zeros((len(draft.steps), STEP_WORDS), np.int64)
        self._flat = self._words.reshape(-1)
        later = self._write_table(draft)
        self._parts = self._split(draft)
        if governor is not None:
            for part in self._parts:
                weakref.finalize(self, governor.forget, part.name).atexit = False
        ids = id_bounds(graph, ("gather_rows",))
        self._inputs = [self._end(i, later, ids.get(i, ())) for i in graph.inputs]
        self._outputs = [self._end(i, later) for i in graph.outputs]

    @property
    def scratch_bytes(self) -> int:
        """Memory of the program besides the store's."""
        return self._arena.nbytes + self._scratch.nbytes + sum(v.nbytes for v in self._constants.values())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run all steps and return the outputs.

        Raises
        ------
        ShapeError
            An input has another shape or kind of number, or an id lies outside of its table.
        """
        if len(inputs) != len(self._inputs):
            raise ShapeError(f"the graph takes {len(self._inputs)} inputs, got {len(inputs)}")
        with self._turn:
            kept = [_take(end, value, self._flat) for end, value in zip(self._inputs, inputs, strict=True)]
            results = [_offer(end, self._flat) for end in self._outputs]
            for part in self._parts:
                if part.host is not None:
                    part.host()
                else:
                    self._run_part(part)
            del kept
            return [r.copy() if end.view is r else r for end, r in zip(self._outputs, results, strict=True)]

    def _run_part(self, part: _Part) -> None:
        governor = self._governor
        if governor is None:
            TEAM.run(part.address, part.count, self._control_address, self.threads)
        elif not self._worth_threads(part):
            run_alone(part.address, part.count, self._control_address)
        else:
            began = time.perf_counter()
            threads = governor.threads_for(part.name)  # another program's trial of fewer may wait for its next run
            if threads == 1:
                run_alone(part.address, part.count, self._control_address)
            else:
                TEAM.run(part.address, part.count, self._control_address, threads)
            self._last = time.perf_counter()
            governor.observe(self._last - began, part.name)  # of one thread too: it tells when to try more

    def _worth_threads(self, part: _Part) -> bool:
        """Whether several threads are sooner done: meetings cost time, and waking workers costs more."""
        if self.threads == 1 or part.work * (1 - 1 / self.threads) < 2 * (_CALL + _MEETING * part.meetings):
            return False
        if part.work >= _WAKING:
            return True
        now = time.perf_counter()
        awake, self._last = now - self._last < _AWAKE, now
        return awake

    # ---- writing the table

    def _write_table(self, draft: Draft) -> dict[int, list[tuple[int, int]]]:
        """Fill the words; return storage → (word, offset) of the addresses that each run sets anew."""
        make_ready(_operations(draft), operation)
        later: dict[int, list[tuple[int, int]]] = {}
        meets = barriers(draft.steps, self._placement, draft.sizes)
        for at, (step, row) in enumerate(zip(draft.steps, self._words, strict=True)):
            if step.host is not None:
                continue
            row[OPERATION_WORD] = operation(step.name, *step.constants)
            row[BARRIER_WORD] = meets[at]
            for i, value in enumerate(step.arguments):
                word = FIRST_ARGUMENT + i
                if isinstance(value, Address):
                    base = self._base(value.tensor)
                    row[word] = base + value.offset
                    if base == 0:
                        places = later.setdefault(self._placement.of[value.tensor], [])
                        places.append((at * STEP_WORDS + word, value.offset))
                elif isinstance(value, Operation):
                    row[word] = operation(value.name, *value.constants)
                elif isinstance(value, float):
                    row[word] = int(np.float32(value).view(np.uint32))
                else:
                    row[word] = value
        return later

    def _base(self, tensor: int) -> int:
        """Address of a tensor, or 0 if each run sets it."""
        place = self._placement.of[tensor]
        storage = self._placement.storages[place]
        if storage.home == "caller":
            return 0
        return address_of(self._memory(place)) if storage.home != "arena" else address_of(self._arena) + storage.offset

    def _memory(self, place: int) -> Array:
        storage = self._placement.storages[place]
        if storage.home == "key":
            return self._buffers[self.graph.tensors[place].key or ""]
        if storage.home == "constant":
            return self._constants[place]
        return self._arena[storage.offset : storage.offset + storage.size]

    def _view(self, i: int) -> Array:
        """A tensor as an array over its memory."""
        tensor = self.graph.tensors[i]
        memory = self._memory(self._placement.of[i])
        return memory.reshape(-1).view(np.uint8)[: 4 * tensor.size].view(tensor.dtype).reshape(tensor.shape)

    def _split(self, draft: Draft) -> list[_Part]:
        """Cut the table at Python functions."""
        parts: list[_Part] = []
        first = 0
        for at, step in enumerate([*draft.steps, None]):
            if step is not None and step.host is None:
                continue
            if at > first:
                work = sum(s.work for s in draft.steps[first:at])
                meetings = int(self._words[first:at, BARRIER_WORD].sum())
                address = address_of(self._words[first])
                parts.append(_Part(f"graph {next(_NUMBERS)}", address, at - first, work, meetings))
            if step is not None:
                parts.append(_Part(step.name, 0, 0, step.work, 0, self._bound(step)))
            first = at + 1
        return parts

    def _bound(self, step: GraphStep) -> Callable[[], None]:
        arrays = [self._view(i) for i in (*step.reads, *step.writes)]
        host: Any = step.host
        return lambda: host(arrays)

    def _end(self, i: int, later: dict[int, list[tuple[int, int]]], ids: Sequence[IdBound] = ()) -> _End:
        place = self._placement.of[i]
        caller = self._placement.storages[place].home == "caller"
        words = np.array(later.get(place, []), np.int64).reshape(-1, 2)
        return _End(self.graph.tensors[i], None if caller else self._view(i), words[:, 0], words[:, 1], ids)


def _constant(tensor: Tensor, value: Array) -> Array:
    made = aligned_array(tensor.shape, np.int32 if tensor.dtype == "int32" else np.float32)
    with np.errstate(over="ignore"):
        made[...] = value
    return made


def _take(end: _End, value: Array, words: Array) -> Array:
    """Bring an input to where the steps look for it; returns what must live until they are done."""
    check_value(end.tensor, value)
    for bound in end.ids:
        if _beyond(value, bound):
            raise ShapeError(f"{end.tensor.name}: ids must lie in 0 … {bound.below - 1}")
    if end.view is not None:
        end.view[...] = value
        return end.view
    value = np.ascontiguousarray(value, end.tensor.dtype)
    words[end.words] = end.offsets + value.ctypes.data
    return value


def _beyond(ids: Array, bound: IdBound) -> bool:
    """Whether an id is below 0, or the bound or more."""
    if bound.where is None and ids.size and ids.dtype == np.int32 and ids.flags.c_contiguous:
        return bool(ids.view(np.uint32).max() >= bound.below)  # without its sign what is below 0 is huge
    return bound.wrong(ids).size > 0


def _offer(end: _End, words: Array) -> Array:
    """Make a fresh array for an output that steps write directly; else return where they leave it."""
    if end.view is not None:
        return end.view
    result = np.empty(end.tensor.shape, end.tensor.dtype)
    words[end.words] = end.offsets + result.ctypes.data
    return result


def _operations(draft: Draft) -> Iterator[Key]:
    """Every operation that a table of `draft` names."""
    for step in draft.steps:
        if step.host is None:
            yield step.name, step.constants
            yield from ((value.name, value.constants) for value in step.arguments if isinstance(value, Operation))
