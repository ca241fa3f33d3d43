"""One call of a graph: rows in, and out of the rows that are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.gpu.dispatch import Rows
from volumetric.runtime.gpu.calls import gathered_words, runs
from volumetric.runtime.gpu.commands import Command, Copy
from volumetric.runtime.gpu.recordings import Recordings
from volumetric.runtime.gpu.repeated import RepeatedCalls
from volumetric.runtime.gpu.scratch import row_bytes, row_words


class Results:
    """Runs calls of one graph."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._graph, self._scratch = recordings.graph, recordings.scratch
        self._repeated = RepeatedCalls(recordings)
        self._readback: Any = None

    def run(self, rows: Rows, words: NDArray[np.uint32], x: NDArray[Any], wanted: list[int]) -> NDArray[np.float32]:
        """Run the call that the control block describes.

        Parameters
        ----------
        rows, words : from `Recordings.place`
        x : input rows
        wanted : rows that have an output, ascending
        """
        self.write(self._recordings.input, x)
        every = len(wanted) == rows.total <= self._scratch.tail_rows
        if every and rows.total in (1, rows.singles):
            return self._output(self._recordings.output, self._repeated.run(rows))
        return self._parts(rows, words, wanted)

    def drop(self) -> None:
        """Drop the commands of the next call."""
        self._repeated.drop()

    def close(self) -> None:
        """Drop them, and all buffers."""
        self._repeated.close()
        if self._readback is not None:
            self._recordings.context.free(self._readback)
            self._readback = None

    def _parts(self, rows: Rows, words: NDArray[np.uint32], wanted: list[int]) -> NDArray[np.float32]:
        """Run the body for all rows, and the tail for the wanted ones."""
        graph, scratch, out = self._graph, self._scratch, self._recordings.output
        commands: list[Command] = [self._recordings.recorded("body", rows)]
        if not wanted or not any(out in node.outputs for node in graph.nodes if node.tail):
            return self._fetch(commands, out, wanted)
        found = []
        for start in range(0, len(wanted), scratch.tail_rows):
            part = wanted[start : start + scratch.tail_rows]
            self._recordings.place_tail(gathered_words(words, part))
            for value, target in scratch.gathered.items():
                commands += _gather(self._buffer(value), scratch.buffers[target], row_bytes(graph.tensors[value]), part)
            commands.append(self._recordings.recorded("tail", Rows(len(part))))
            found.append(self._fetch(commands, out, range(len(part))))
            commands = []
        return np.concatenate(found)

    def write(self, value: int, x: NDArray[Any]) -> None:
        """Put the rows of a value where the graph reads them."""
        flat = x.reshape(len(x), -1)
        columns = row_words(self._graph.tensors[value])
        if columns != flat.shape[1]:
            flat = np.pad(flat, ((0, 0), (0, columns - flat.shape[1])))
        self._recordings.context.write(self._buffer(value), flat)

    def _fetch(self, commands: list[Command], value: int, rows: Sequence[int]) -> NDArray[np.float32]:
        """Submit, and return rows of a value."""
        context, executor = self._recordings.context, self._recordings.executor
        if not rows:
            executor.submit(commands)
            return np.empty((0, *self._graph.tensors[value].shape[1:]), np.float32)
        size, count = row_bytes(self._graph.tensors[value]), len(rows)
        if self._readback is None or self._readback.size < count * size:
            if self._readback is not None:
                context.free(self._readback)
            self._readback = context.buffer(count * size, "results", read=True)
        copies = _gather(self._buffer(value), self._readback, size, rows)
        number = executor.submit([*commands, *copies])
        data = executor.read(self._readback, count * size, number)
        return self._output(value, np.frombuffer(data, np.float32).reshape(count, size // 4))

    def _buffer(self, value: int) -> Any:
        return self._scratch.buffers[self._scratch.values[value]]

    def _output(self, value: int, padded: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of a value without their padding, in its shape, as a fresh array."""
        about = self._graph.tensors[value]
        return np.ascontiguousarray(padded[:, : about.width]).reshape(len(padded), *about.shape[1:])


def _gather(source: Any, target: Any, size: int, rows: Sequence[int]) -> list[Command]:
    """Copy rows of `size` bytes to the beginning of another buffer, one after the other."""
    found: list[Command] = []
    at = 0
    for first, count in runs(rows):
        found.append(Copy(source, first * size, target, at * size, count * size))
        at += count
    return found
