"""Calls of one row that hand their output to the host, as sampling makes them.

Position and token travel in buffers, so each call has the same commands: while the GPU runs one call, those of the next
are encoded, which takes the host as long as a small model takes the GPU.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric.runtime.gpu.commands import Command, Copy, Pass
from volumetric.runtime.gpu.scratch import row_bytes

if TYPE_CHECKING:
    from volumetric.runtime.gpu.executable import GpuExecutable
    from volumetric.runtime.gpu.state import GpuState


class SingleRows:
    """One-row calls of an executable; the commands of the next one are kept for the state of the last."""

    def __init__(self, executable: GpuExecutable) -> None:
        self._executable = executable
        self._size = row_bytes(executable.plan.values[executable.plan.outputs[0]])
        self._buffer: Any = None
        self._begun: Any = None
        self._owner: weakref.ref[GpuState] | None = None

    def run(self, state: GpuState) -> NDArray[np.float32]:
        """Run the row that input and control block hold; returns the output with its padding, ``[1, width padded]``."""
        executor = self._executable.executor
        begun = self._begun if self._owner is not None and self._owner() is state else None
        if begun is None:
            self._discard()
            begun = self._encode(state)
        self._begun, self._owner = None, None
        number = executor.send(begun)
        self._begun, self._owner = self._encode(state), weakref.ref(state)
        return np.frombuffer(executor.read(self._buffer, self._size, number), np.float32)[None]

    def close(self) -> None:
        """Drop the commands of the next call, and the buffer."""
        self._discard()
        if self._buffer is not None:
            self._executable.context.free(self._buffer)
            self._buffer = None

    def _encode(self, state: GpuState) -> Any:
        executable = self._executable
        if self._buffer is None:
            self._buffer = executable.context.buffer(self._size, "a row of results", read=True)
        output = executable.scratch.values[executable.plan.outputs[0]]
        commands: list[Command] = [
            Pass(executable.prepared(state, "decode", 1), 1),
            Copy(output, 0, self._buffer, 0, self._size),
        ]
        return executable.executor.begin(commands)

    def _discard(self) -> None:
        if self._begun is not None:
            self._executable.executor.discard(self._begun)
        self._begun, self._owner = None, None
