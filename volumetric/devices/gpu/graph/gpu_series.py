"""Several runs of a program in one submission: one upload, one compute pass, one read-back.

Each run has its own place for every input and output, and dispatches that read or write them are bound once for each
place; the others are those of the single run. So the runs have the same dispatches over the same scratch memory as
single runs, one after the other, and the same bits. Inputs that are rows of a resident array are picked on the GPU, by
one dispatch for all runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from volumetric.base._typing import Array
from volumetric.devices.gpu.command_list import RecordedDispatch
from volumetric.devices.gpu.gpu_commands import Command, CopyCommand, Executor, PassCommand
from volumetric.devices.gpu.gpu_context import BoundDispatch, BufferSlice, GpuContext
from volumetric.devices.gpu.kernels.graph.picked_rows import pick_rows
from volumetric.devices.gpu.owned_buffers import OwnedBuffers
from volumetric.graph.ops import Tensor
from volumetric.graph.run_series import Carry

MOST_RUNS = 64
"""Runs of a submission at most: bindings are created for each."""
_MOST_BYTES = 64 << 20
"""Bytes of the inputs and outputs of all runs of a submission at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesParts:
    """What a program lends to its series.

    Attributes
    ----------
    entries, calls : its dispatches as plain data, and bound
    buffers : buffers by their names in `entries`
    inputs, outputs : each tensor and the name of its buffer, which `entries` use for nothing else
    """

    context: GpuContext
    executor: Executor
    entries: Sequence[RecordedDispatch]
    calls: Sequence[BoundDispatch]
    buffers: Mapping[str, Any]
    inputs: Sequence[tuple[Tensor, str]]
    outputs: Sequence[tuple[Tensor, str]]


class SeriesColumn(NamedTuple):
    """An input in several runs.

    Attributes
    ----------
    table : the array whose rows the runs pick, or None
    values : ``[runs, …]``: their indices, or the values themselves
    """

    table: Array | None
    values: Array

    def runs(self, start: int, stop: int) -> SeriesColumn:
        """Return some of the runs."""
        return SeriesColumn(self.table, self.values[start:stop])


class GpuSeries:
    """Submissions of up to `most` runs.

    Parameters
    ----------
    picked : which inputs are rows of resident arrays
    carry : see `run_series`
    """

    def __init__(self, parts: SeriesParts, picked: Sequence[bool], carry: Carry | None, most: int) -> None:
        self.most = most
        self._parts, self._carry = parts, carry
        self._picked = [at for at, is_picked in enumerate(picked) if is_picked]
        self._own = OwnedBuffers(parts.context)
        self._prepared: dict[int, Any] = {}
        self._tables: list[Array | None] = []
        self._picks: list[BoundDispatch] = []
        self.begun: tuple[int, Any] | None = None
        try:
            self._place_inputs(picked)
            self._place_outputs()
            self._calls = [self._bind_run(run) for run in range(most)]
        except BaseException:
            self.close()
            raise

    @property
    def nbytes(self) -> int:
        """Bytes of its own buffers."""
        return self._own.nbytes

    @staticmethod
    def capacity(parts: SeriesParts, runs: int) -> int:
        """Return the runs of a submission, at most, for a series of `runs`: a power of two unless memory bounds it."""
        step = parts.context.alignment
        each = sum(_room(tensor, step) for tensor, _ in (*parts.inputs, *parts.outputs))
        fit = min(_MOST_BYTES, parts.context.caps.max_binding) // max(each, 1)
        return max(1, min(1 << (runs - 1).bit_length(), MOST_RUNS, fit))

    def send(self, columns: Sequence[SeriesColumn], tables: Mapping[int, Any]) -> int:
        """Upload the inputs of up to `most` runs and submit them; returns the submission's number.

        Parameters
        ----------
        tables : position of a picked input → the resident buffer of its array
        """
        self._bind_tables(columns, tables)
        count = len(columns[0].values)
        for at in self._picked:
            ids, start = columns[at].values, self._ids[at]
            self._host[start : start + ids.nbytes] = ids.reshape(-1).view(np.uint8)
        for at, start in self._starts.items():
            values = columns[at].values.reshape(count, -1).view(np.uint8)
            self._rounds[:count, start : start + values.shape[1]] = values
        context, end = self._parts.context, self._first + count * self._stride
        context.write(self._own["series inputs"], self._host[:end])
        begun, self.begun = self.begun, None
        executor = self._parts.executor
        if begun is not None and begun[0] == count:
            return executor.send(begun[1])
        if begun is not None:
            executor.discard(begun[1])
        return executor.submit(self._commands(count))

    def read(self, count: int, submission: int) -> list[list[Array]]:
        """Record the next submission of as many runs, wait for this one, and return the outputs of its runs."""
        executor = self._parts.executor
        self.begun = count, executor.record(self._commands(count))
        if not self._staged:
            return [[] for _ in range(count)]
        data = np.frombuffer(executor.read(self._own["series results"], self._staged, submission), np.uint8)
        results: list[list[Array]] = []
        for run in range(count):
            outputs: list[Array] = []
            for (tensor, _), starts, room in zip(self._parts.outputs, self._results, self._rooms, strict=True):
                at = starts[run % 2] + run // 2 * room
                part = data[at : at + 4 * tensor.size].copy()
                outputs.append(part.view(tensor.dtype).reshape(tensor.shape))
            results.append(outputs)
        return results

    def close(self) -> None:
        """Free everything."""
        if self.begun is not None:
            self._parts.executor.discard(self.begun[1])
            self.begun = None
        self._own.close()
        self._picks, self._prepared = [], {}

    def _place_inputs(self, picked: Sequence[bool]) -> None:
        """Lay out the upload: the ids of each picked input for all runs, then the other inputs of each run."""
        step, most = self._parts.context.alignment, self.most
        self._ids: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        end = 0
        for at in self._picked:
            self._ids[at] = end
            end += _aligned(4 * most * self._parts.inputs[at][0].shape[0], step)
        self._first, stride = end, 0
        for at, (tensor, _) in enumerate(self._parts.inputs):
            if not picked[at]:
                self._starts[at] = stride
                stride += _room(tensor, step)
        self._stride = stride
        self._host = np.zeros(self._first + most * stride, np.uint8)
        self._rounds = self._host[self._first :].reshape(most, stride)
        self._own.make("series inputs", max(self._host.size, step))
        for at in self._picked:
            self._own.make(f"picked {at}", most * _room(self._parts.inputs[at][0], step))

    def _place_outputs(self) -> None:
        """Outputs of even and of odd runs have separate buffers: a run reads those of the run before."""
        step, half = self._parts.context.alignment, -(-self.most // 2)
        self._rooms = [_room(tensor, step) for tensor, _ in self._parts.outputs]
        self._results: list[tuple[int, int]] = []
        self._staged = 0
        for at, room in enumerate(self._rooms):
            for odd in range(2):
                self._own.make(f"outputs {at} {odd}", half * room)
            self._results.append((self._staged, self._staged + half * room))
            self._staged += 2 * half * room
        if self._staged:
            self._own.make("series results", self._staged, read=True)

    def _bind_run(self, run: int) -> list[BoundDispatch]:
        """Bind the dispatches of one run."""
        own, parts = self._own, self._parts
        places: dict[str, BufferSlice] = {}
        for at, (tensor, name) in enumerate(parts.inputs):
            room = _room(tensor, parts.context.alignment)
            size = max(4 * tensor.size, 16)
            if self._carry is not None and run and at == self._carry.input:
                places[name] = self._output_place(self._carry.output, run - 1)
            elif at in self._starts:
                places[name] = BufferSlice(
                    own["series inputs"], self._first + run * self._stride + self._starts[at], size
                )
            else:
                places[name] = BufferSlice(own[f"picked {at}"], run * room, size)
        for at, (_, name) in enumerate(parts.outputs):
            places[name] = self._output_place(at, run)
        calls = list[BoundDispatch]()
        for entry, call in zip(parts.entries, parts.calls, strict=True):
            if places.keys() & set(entry.buffers.values()):
                buffers = {local: places.get(name, parts.buffers[name]) for local, name in entry.buffers.items()}
                call = parts.context.bind(entry.dispatch, buffers, entry.dims)
            calls.append(call)
        return calls

    def _output_place(self, at: int, run: int) -> BufferSlice:
        size = max(4 * self._parts.outputs[at][0].size, 16)
        return BufferSlice(self._own[f"outputs {at} {run % 2}"], run // 2 * self._rooms[at], size)

    def _bind_tables(self, columns: Sequence[SeriesColumn], tables: Mapping[int, Any]) -> None:
        """Bind the dispatches that pick rows, unless they are bound to these tables."""
        arrays = [columns[at].table for at in self._picked]
        if len(arrays) == len(self._tables) and all(a is b for a, b in zip(arrays, self._tables, strict=True)):
            return
        if self.begun is not None:
            self._parts.executor.discard(self.begun[1])
            self.begun = None
        context, step = self._parts.context, self._parts.context.alignment
        self._prepared.clear()
        self._picks = []
        for at in self._picked:
            tensor = self._parts.inputs[at][0]
            rows, width = tensor.shape[0], prod(tensor.shape[1:])
            ids = BufferSlice(self._own["series inputs"], self._ids[at], 4 * self.most * rows)
            buffers = {"x": tables[at], "ids": ids, "y": self._own[f"picked {at}"]}
            dims = self.most, rows, width, _room(tensor, step) // 4
            self._picks.append(context.bind(pick_rows(self.most * rows * width), buffers, dims))
        self._tables = arrays

    def _commands(self, count: int) -> list[Command]:
        """Return the commands of `count` runs."""
        if count not in self._prepared:
            calls = [*self._picks, *(call for run in self._calls[:count] for call in run)]
            self._prepared[count] = self._parts.executor.prepare(calls)
        commands: list[Command] = [PassCommand(self._prepared[count])]
        for at, (starts, room) in enumerate(zip(self._results, self._rooms, strict=True)):
            commands += [
                CopyCommand(self._own[f"outputs {at} {odd}"], 0, self._own["series results"], starts[odd], size)
                for odd in range(2)
                if (size := (count + 1 - odd) // 2 * room)
            ]
        return commands


def _aligned(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step


def _room(tensor: Tensor, step: int) -> int:
    """Bytes from one run's place of a tensor to the next."""
    return _aligned(max(4 * tensor.size, 16), step)
