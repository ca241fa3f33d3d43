"""Calls of one row of each sequence that hand their outputs to the host, as sampling makes them.

Positions, page tables and tokens lie in buffers, so such calls of as many sequences have the same commands: while the
GPU runs one call, those of the next are encoded, which takes the host as long as a small model takes the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.gpu.dispatch import Rows
from volumetric.runtime.gpu.commands import Command, Copy
from volumetric.runtime.gpu.scratch import row_bytes

if TYPE_CHECKING:
    from volumetric.runtime.gpu.recordings import Recordings


class RepeatedCalls:
    """Such calls of a graph; the commands of the next one are kept."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._size = row_bytes(recordings.graph.tensors[recordings.output])
        self._buffer: Any = None
        self._begun: tuple[Rows, Any] | None = None

    def run(self, rows: Rows) -> NDArray[np.float32]:
        """Run the rows that input and control block hold; returns the outputs with their padding."""
        executor = self._recordings.executor
        if self._begun is None or self._begun[0] != rows:
            self.drop()
            self._begun = self._encode(rows)
        begun, self._begun = self._begun, None
        number = executor.send(begun[1])
        self._begun = self._encode(rows)
        nbytes = rows.total * self._size
        return np.frombuffer(executor.read(self._buffer, nbytes, number), np.float32).reshape(rows.total, -1)

    def drop(self) -> None:
        """Drop the commands of the next call."""
        if self._begun is not None:
            begun, self._begun = self._begun[1], None
            self._recordings.drop(begun)

    def close(self) -> None:
        """Drop them, and the buffer."""
        self.drop()
        if self._buffer is not None:
            self._recordings.context.free(self._buffer)
            self._buffer = None

    def _encode(self, rows: Rows) -> tuple[Rows, Any]:
        recordings = self._recordings
        if self._buffer is None or self._buffer.size < rows.total * self._size:
            if self._buffer is not None:
                recordings.context.free(self._buffer)
            self._buffer = recordings.context.buffer(rows.total * self._size, "rows of results", read=True)
        output = recordings.scratch.buffers[recordings.scratch.values[recordings.output]]
        commands: list[Command] = [
            recordings.recorded("whole", rows),
            Copy(output, 0, self._buffer, 0, rows.total * self._size),
        ]
        return rows, recordings.executor.begin(commands)
