"""Calls of one row per sequence whose outputs are read by the host, as in sampling.

Positions, page tables and tokens are in buffers, so such calls with the same number of sequences have the same
commands: while the GPU runs one call, those of the next are encoded, which takes the host as long as a small model
takes the GPU.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.gpu_commands import Command, CopyCommand
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.devices.gpu.value_buffers import row_bytes

if TYPE_CHECKING:
    from volumetric.devices.gpu.recording_cache import RecordingCache

Outputs: TypeAlias = tuple[int, ...]
"""Tensors that the host reads after a call."""


class RepeatedCalls:
    """Repeated calls of a graph; the commands of the next one are encoded ahead."""

    def __init__(self, recordings: RecordingCache) -> None:
        self._recordings = recordings
        self._buffer: Any = None
        self._begun: tuple[tuple[CallRows, Outputs], Any] | None = None

    def run(self, rows: CallRows, outputs: Outputs) -> list[NDArray[np.float32]]:
        """Run the rows in the input buffers and control block; returns the rows of `outputs` with their padding."""
        executor, call = self._recordings.executor, (rows, outputs)
        if self._begun is None or self._begun[0] != call:
            self.drop()
            self._begun = call, self._encode(*call)
        begun = self._begun[1]
        try:
            number = executor.send(begun)
        finally:
            if not executor.must_be_sent(begun):  # else an interrupt came first: it serves the next call
                self._begun = None
        self._begun = call, self._encode(*call)
        sizes = [rows.total * row_bytes(self._recordings.graph.tensors[i]) // 4 for i in outputs]
        words = np.frombuffer(executor.read(self._buffer, 4 * sum(sizes), number), np.float32)
        if len(sizes) == 1:
            return [words.reshape(rows.total, -1)]
        return [part.reshape(rows.total, -1) for part in np.split(words, np.cumsum(sizes)[:-1])]

    def drop(self) -> None:
        """Drop the commands of the next call."""
        if self._begun is not None:
            begun, self._begun = self._begun[1], None
            self._recordings.drop(begun)

    def close(self) -> None:
        """Drop the commands, and the buffer."""
        self.drop()
        if self._buffer is not None:
            self._recordings.context.free(self._buffer)
            self._buffer = None

    def _encode(self, rows: CallRows, outputs: Outputs) -> Any:
        recordings, scratch = self._recordings, self._recordings.scratch
        sizes = [rows.total * row_bytes(recordings.graph.tensors[i]) for i in outputs]
        if self._buffer is None or self._buffer.size < sum(sizes):
            if self._buffer is not None:
                recordings.context.free(self._buffer)
            self._buffer = recordings.context.buffer(sum(sizes), "rows of results", read=True)
        commands: list[Command] = [recordings.pass_of("whole", rows, recordings.needed_segments(outputs))]
        places = zip(outputs, accumulate(sizes, initial=0), sizes, strict=False)
        commands += [
            CopyCommand(scratch.buffers[scratch.values[i]], 0, self._buffer, at, size) for i, at, size in places
        ]
        return recordings.executor.begin(commands)
