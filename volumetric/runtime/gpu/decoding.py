"""Greedy decoding on the device, two tokens in flight.

Arg max, next token and position stay in GPU buffers, so every token replays the same commands, and token n + 1 is
submitted before token n is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.errors import GenerationError
from volumetric.runtime.gpu.commands import Command, Copy

if TYPE_CHECKING:
    from volumetric.runtime.gpu.executable import GpuExecutable
    from volumetric.runtime.gpu.state import GpuState

_DEPTH = 2
"""Tokens in flight. Two hide the encoding behind the GPU; more would only waste work after the end."""


class TokenLoop:
    """One run of greedy decoding over a state."""

    def __init__(self, executable: GpuExecutable, state: GpuState) -> None:
        self._executable = executable
        self._state = state
        self._ids = executable.scratch.values[executable.plan.inputs[0]]
        self._ring: list[Any] = []
        self._sent = 0
        self._flying: deque[tuple[Any, int]] = deque()

    def run(self, token: int) -> Generator[int]:
        """Yield tokens without end; the state counts exactly those fed for the tokens yielded."""
        executable, state = self._executable, self._state
        try:
            self._ring += [executable.context.buffer(16, "token", read=True) for _ in range(_DEPTH + 1)]
            while True:
                if executable.loop is not self:
                    self._begin(token)
                executable.check_rows(state.position, 1)
                while len(self._flying) < _DEPTH and self._fits():
                    self._flying.append(self._submit())
                buffer, number = self._flying.popleft()
                token = int(np.frombuffer(executable.executor.read(buffer, 4, number), np.uint32)[0])
                state.advance(1)
                expected = state.position
                yield token
                if state.position != expected:
                    executable.loop = None
        finally:
            self._close()

    def _fits(self) -> bool:
        """Whether the token after those in flight still has a place; the first one is checked, and raises."""
        try:
            self._executable.check_rows(self._state.position, len(self._flying) + 1)
        except GenerationError:
            return False
        return True

    def _begin(self, token: int) -> None:
        """Set token and position on the device. What was in flight before wrote only rows that are written again."""
        executable = self._executable
        self._flying.clear()
        executable.write_control(executable.control, self._state.position, 1)
        executable.context.write(self._ids, np.array([token], np.uint32))
        executable.loop = self

    def _submit(self) -> tuple[Any, int]:
        executable = self._executable
        buffer = self._ring[self._sent % len(self._ring)]
        self._sent += 1
        commands: list[Command] = [executable.decoding(self._state), Copy(self._ids, 0, buffer, 0, 4)]
        return buffer, executable.executor.submit(commands)

    def _close(self) -> None:
        executable = self._executable
        if executable.loop is self:
            executable.loop = None
        self._flying.clear()
        for buffer in self._ring:
            executable.context.free(buffer)
        self._ring.clear()
