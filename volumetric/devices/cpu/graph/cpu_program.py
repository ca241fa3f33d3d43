"""A graph of fixed shape bound to memory: a run is one native call on each thread."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.devices.cpu.arena import address_of, aligned_array
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.devices.cpu.graph.single_input_call import SingleInputCall
from volumetric.devices.cpu.graph.store import CpuStore
from volumetric.devices.cpu.kernels.step_words import FLUSH_WORD, ROWS_WORD, SLOTS_WORD
from volumetric.devices.cpu.placement import StoragePlacement
from volumetric.devices.cpu.profile import step_times_of_table
from volumetric.devices.cpu.step_table import StepTable, TablePart, compile_steps
from volumetric.devices.cpu.thread_control import StepTableExecutor
from volumetric.graph.id_ranges import IdRange, id_bounds
from volumetric.graph.interpret import check_buffer, check_value
from volumetric.graph.ops import Graph, Tensor
from volumetric.run.step_times import StepTime


@dataclass(frozen=True, slots=True)
class _ProgramEnd:
    """An input or output: its index and tensor, whether it is in the caller's array, and the bound of its ids."""

    number: int
    tensor: Tensor
    is_callers: bool
    ids: Sequence[IdRange] = ()


class CpuProgram:
    """A compiled graph. Several Python threads may call `run`; programs of one store are serialised.

    Parameters
    ----------
    store : of its persistent buffers, and of scratch memory for its programs
    executor : executes its steps
    alike : rows are batch-invariant, see `CpuGraphs`
    """

    def __init__(
        self, graph: Graph, store: CpuStore, executor: StepTableExecutor, *, batch_invariant: bool = False
    ) -> None:
        self.graph = graph
        self.store = store
        self._executor = executor
        self._buffers = {key: check_buffer(tensor, store.buffers) for key, tensor in graph.tensors_by_key.items()}
        draft = build_steps(graph, batch_invariant=batch_invariant)
        compile_steps([draft])
        placement = StoragePlacement(draft)
        self._constants = {placement.of[i]: _constant(graph.tensors[i], v) for i, v in graph.constants.items()}
        self._table = StepTable(draft, placement)
        for part in self._table.parts:
            weakref.finalize(self, executor.governor.drop_kinds, part.name).atexit = False
        homes = {number: storage.home for number, storage in placement.storages.items()}
        of_key = {number: graph.tensors[number].key or "" for number, home in homes.items() if home == "key"}
        self._fixed = {number: address_of(self._buffers[key]) for number, key in of_key.items()}
        self._fixed |= {number: address_of(value) for number, value in self._constants.items()}
        self._views: dict[int, Array] = {}
        self._arena: Array | None = None  # memory to which the table is bound
        ids = id_bounds(graph, ("gather_rows", "cross_attend", "weigh_rows"))

        def end(i: int, bounds: Sequence[IdRange] = ()) -> _ProgramEnd:
            return _ProgramEnd(i, graph.tensors[i], homes[placement.of[i]] == "caller", bounds)

        self._inputs = [end(i, ids.get(i, ())) for i in graph.inputs]
        self._outputs = [end(i) for i in graph.outputs]

    @property
    def constant_bytes(self) -> int:
        """Bytes of memory not shared with other programs."""
        return sum(value.nbytes for value in self._constants.values())

    @property
    def scratch_bytes(self) -> int:
        """Bytes of a run in addition to the store's buffers; programs of one store share all but constants."""
        return self._table.placement.arena + self._table.scratch * self._executor.threads + self.constant_bytes

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run all steps and return the outputs.

        Raises
        ------
        ShapeError
            An input has another shape or kind of number, or an id is outside of its table.
        """
        if len(inputs) != len(self._inputs):
            raise ShapeError(f"the graph takes {len(self._inputs)} inputs, got {len(inputs)}")
        with self.store.lock:
            self._bind()
            input_arrays = [self._place_input(end, value) for end, value in zip(self._inputs, inputs, strict=True)]
            results = [self._output_array(end) for end in self._outputs]
            self.run_parts()
            del input_arrays
            return [
                result if end.is_callers else result.copy() for end, result in zip(self._outputs, results, strict=True)
            ]

    def prepare_call(self) -> SingleInputCall | None:
        """Return the program as a call with little Python work, if it has one input without ids and one output."""
        if len(self._inputs) != 1 or len(self._outputs) != 1 or self._inputs[0].ids:
            return None
        return SingleInputCall(self)

    @property
    def ends(self) -> list[tuple[Tensor, bool]]:
        """Inputs and outputs, and whether each is in an array of the caller's."""
        return [(end.tensor, end.is_callers) for end in (*self._inputs, *self._outputs)]

    def place_ends(self, homes: Sequence[Array | None]) -> list[Array]:
        """Place inputs and outputs at the addresses `homes`, None for their usual places; return each address.

        The layout holds until another program of the store runs, or this one with another layout: then
        `CallScratch.user` changes.
        """
        self._bind()
        ends = (*self._inputs, *self._outputs)
        for end, home in zip(ends, homes, strict=True):
            if home is not None:
                self._table.set_address(end.number, address_of(home))
        return [self.view(end.number) if home is None else home for end, home in zip(ends, homes, strict=True)]

    def run_parts(self) -> None:
        """Run all steps on the inputs at their present addresses."""
        for part in self._table.parts:
            self._run_part(part)

    def step_times(self, inputs: Sequence[Array], *, repeats: int = 10) -> list[StepTime]:
        """Time of each step of a run on `inputs`; graph writes to tensors with a key take effect."""
        with self.store.lock:
            self._bind()
            input_arrays = [self._place_input(end, value) for end, value in zip(self._inputs, inputs, strict=True)]
            results = [self._output_array(end) for end in self._outputs]
            times = step_times_of_table(self._table, self.store.scratch.control, self._executor.threads, repeats, self)
            del input_arrays, results
            return times

    def view(self, i: int) -> Array:
        """A tensor as an array over its memory."""
        if i not in self._views:
            self._views[i] = self._view_of(i)
        return self._views[i]

    def _view_of(self, i: int) -> Array:
        tensor, number = self.graph.tensors[i], self._table.placement.of[i]
        home = self._table.placement.storages[number].home
        if home == "key":
            memory = self._buffers[self.graph.tensors[number].key or ""]
        else:
            memory = self._constants[number] if home == "constant" else self._table.bytes_of(i)
        return memory.reshape(-1).view(np.uint8)[: 4 * tensor.size].view(tensor.dtype).reshape(tensor.shape)

    def _bind(self) -> None:
        scratch, table = self.store.scratch, self._table
        scratch.user = None
        scratch.words[FLUSH_WORD], scratch.words[SLOTS_WORD] = self.graph.flush, address_of(table.slots)
        scratch.words[ROWS_WORD] = 1  # of predicates
        if scratch.arena is self._arena:  # the scratch address is unchanged, and scratch never shrinks
            return
        scratch.reserve(table.placement.arena, each=table.scratch, threads=self._executor.threads)
        table.bind(scratch.arena, self._fixed)
        self._arena = scratch.arena
        self._views.clear()

    def _run_part(self, part: TablePart) -> None:
        control, executor = self.store.scratch.control, self._executor
        if part.host is not None:
            part.host(self)
        elif executor.is_worth_threads(part.work, part.meetings):
            executor.run(part.address, part.count, control, kind=part.name)
        else:
            executor.run_single_threaded(part.address, part.count, control)

    def _place_input(self, end: _ProgramEnd, value: Array) -> Array:
        """Copy an input to its address; return the array that must stay alive during the run."""
        check_value(end.tensor, value)
        for bound in end.ids:
            if _is_out_of_bounds(value, bound):
                raise ShapeError(f"{end.tensor.name}: ids must lie in 0 … {bound.below - 1}")
        if not end.is_callers:
            self.view(end.number)[...] = value
            return value
        value = np.ascontiguousarray(value, end.tensor.dtype)
        self._table.set_address(end.number, address_of(value))
        return value

    def _output_array(self, end: _ProgramEnd) -> Array:
        """Allocate an array for an output that steps write directly; else return the present address of the output."""
        if not end.is_callers:
            return self.view(end.number)
        result = np.empty(end.tensor.shape, end.tensor.dtype)
        self._table.set_address(end.number, address_of(result))
        return result


def _constant(tensor: Tensor, value: Array) -> Array:
    array = aligned_array(tensor.shape, tensor.dtype)
    with np.errstate(over="ignore"):
        array[...] = value
    return array


def _is_out_of_bounds(ids: Array, bound: IdRange) -> bool:
    """Whether an id is below 0, or the bound or more."""
    if bound.where is None and ids.size and ids.dtype == np.int32 and ids.flags.c_contiguous:
        return bool(ids.view(np.uint32).max() >= bound.below)  # as unsigned, negative numbers are huge
    return bound.wrong(ids).size > 0
