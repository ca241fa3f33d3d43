"""One call of a graph: upload rows, run, and read the requested rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.call_schedule import PLACES, consecutive_runs, gathered_words
from volumetric.devices.gpu.draw_plans import DrawnRow, draw_kinds
from volumetric.devices.gpu.gpu_commands import Command, CopyCommand
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.devices.gpu.readback_buffer import ReadbackBuffer
from volumetric.devices.gpu.recording_cache import RecordingCache
from volumetric.devices.gpu.repeated_calls import RepeatedCalls
from volumetric.devices.gpu.value_buffers import row_bytes


class CallRunner:
    """Runs calls of one graph."""

    def __init__(self, recordings: RecordingCache) -> None:
        self._recordings = recordings
        self._graph, self._scratch = recordings.graph, recordings.scratch
        self._repeated = RepeatedCalls(recordings)
        self._made_in_tail = {i for node in self._graph.nodes if node.tail for i in node.outputs}
        self._readback: ReadbackBuffer = ReadbackBuffer(recordings.context)

    def run(
        self,
        rows: CallRows,
        words: NDArray[np.uint32],
        inputs: Mapping[int, NDArray[Any]],
        output_rows: Mapping[int, list[int]],
    ) -> dict[int, NDArray[np.float32]]:
        """Run the call that the control block describes.

        Parameters
        ----------
        rows, words : from `RecordingCache.place`
        inputs : input → its rows
        output_rows : output → requested rows, ascending
        """
        for i, x in inputs.items():
            self._recordings.write(i, x)
        every = all(len(numbers) == rows.total <= self._scratch.tail_rows for numbers in output_rows.values())
        if output_rows and every:
            if rows.total not in (1, rows.singles):
                needed = self._recordings.needed_segments(output_rows)
                return self._fetch([self._recordings.pass_of("whole", rows, needed)], output_rows)
            outputs = zip(output_rows, self._repeated.run(rows, tuple(output_rows)), strict=True)
            return {i: self._output(i, value) for i, value in outputs}
        return self._run_in_parts(rows, words, output_rows)

    def draws(self, value: int) -> bool:
        """Whether tokens can be sampled from the rows of a value, which must be computed by the tail."""
        return value in self._made_in_tail

    def pick(
        self,
        rows: CallRows,
        words: NDArray[np.uint32],
        inputs: Mapping[int, NDArray[Any]],
        ends: Sequence[DrawnRow | None],
    ) -> Iterator[list[int]]:
        """Run the call in the control block, and yield the codes of the tokens of rows sampled together.

        The logits of rows left to the host are valid until the next codes are requested.

        Parameters
        ----------
        ends : how each row is sampled; None if it is not requested
        """
        for i, x in inputs.items():
            self._recordings.write(i, x)
        recordings, scratch = self._recordings, self._scratch
        drawn_rows = [number for number, row in enumerate(ends) if row is not None]
        needed = recordings.needed_segments([recordings.output])
        commands: list[Command] = [recordings.pass_of("body", rows)]
        if not drawn_rows:
            recordings.executor.submit(commands)
        for start in range(0, len(drawn_rows), recordings.most_singles):
            part = drawn_rows[start : start + recordings.most_singles]
            drawn = [row for row in (ends[number] for number in part) if row is not None]
            recordings.place_tail(gathered_words(words, part))
            recordings.drawing.write_rows(drawn)
            for i, target in scratch.gathered.items():
                commands += _gather(self._buffer(i), scratch.buffers[target], row_bytes(self._graph.tensors[i]), part)
            commands.append(recordings.pass_of("tail", CallRows(len(part)), needed))
            commands.append(recordings.picks(len(part), draw_kinds(drawn)))
            size = 4 * len(part)
            readback = self._readback.of(size)
            number = recordings.executor.submit([*commands, CopyCommand(recordings.tokens, 0, readback, 0, size)])
            yield np.frombuffer(recordings.executor.read(readback, size, number), np.uint32).tolist()
            commands = []

    def drop(self) -> None:
        """Drop the commands of the next call."""
        self._repeated.drop()

    def close(self) -> None:
        """Drop them, and all buffers."""
        self._repeated.close()
        self._readback.close()

    def _run_in_parts(
        self, rows: CallRows, words: NDArray[np.uint32], output_rows: Mapping[int, list[int]]
    ) -> dict[int, NDArray[np.float32]]:
        """Run the body for all rows, and the tail for rows with a requested output."""
        graph, scratch = self._graph, self._scratch
        late = {i: numbers for i, numbers in output_rows.items() if i in self._made_in_tail}
        early = {i: numbers for i, numbers in output_rows.items() if i not in late}
        ends, needed = sorted(set().union(*late.values())), self._recordings.needed_segments(late)
        commands: list[Command] = [self._recordings.pass_of("body", rows)]
        values: dict[int, list[NDArray[np.float32]]] = {i: [] for i in output_rows}
        most = min(scratch.tail_rows, PLACES)
        for start in range(0, max(len(ends), 1), most):
            part = ends[start : start + most]
            if part:
                self._recordings.place_tail(gathered_words(words, part))
                for i, target in scratch.gathered.items():
                    commands += _gather(self._buffer(i), scratch.buffers[target], row_bytes(graph.tensors[i]), part)
                commands.append(self._recordings.pass_of("tail", CallRows(len(part)), needed))
            place = {number: at for at, number in enumerate(part)}
            requested = early | {i: [place[n] for n in numbers if n in place] for i, numbers in late.items()}
            for i, value in self._fetch(commands, requested).items():
                values[i].append(value)
            commands, early = [], {}
        return {i: np.concatenate(parts) if len(parts) > 1 else parts[0] for i, parts in values.items()}

    def _fetch(self, commands: list[Command], output_rows: Mapping[int, list[int]]) -> dict[int, NDArray[np.float32]]:
        """Submit, and read rows of values."""
        executor = self._recordings.executor
        sizes = {i: len(rows) * row_bytes(self._graph.tensors[i]) for i, rows in output_rows.items()}
        total = sum(sizes.values())
        if not total:
            executor.submit(commands)
            return {i: np.empty((0, *self._graph.tensors[i].shape[1:]), np.float32) for i in output_rows}
        readback = self._readback.of(total)
        copies, at = list(commands), 0
        for i, rows in output_rows.items():
            copies += _gather(self._buffer(i), readback, row_bytes(self._graph.tensors[i]), rows, at)
            at += sizes[i]
        number = executor.submit(copies)
        words = np.frombuffer(executor.read(readback, total, number), np.float32)
        parts = np.split(words, np.cumsum([size // 4 for size in sizes.values()])[:-1])
        return {
            i: self._output(i, part.reshape(len(output_rows[i]), -1))
            for i, part in zip(output_rows, parts, strict=True)
        }

    def _buffer(self, value: int) -> Any:
        return self._scratch.buffers[self._scratch.values[value]]

    def _output(self, value: int, padded: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of a value without their padding, in its shape, as a new array."""
        about = self._graph.tensors[value]
        return np.ascontiguousarray(padded[:, : about.width]).reshape(len(padded), *about.shape[1:])


def _gather(source: Any, target: Any, size: int, rows: Sequence[int], at: int = 0) -> list[Command]:
    """Copy rows of `size` bytes to byte `at` of another buffer, one after the other."""
    copies: list[Command] = []
    for first, count in consecutive_runs(rows):
        copies.append(CopyCommand(source, first * size, target, at, count * size))
        at += count * size
    return copies
