"""Greedy decoding on the device, two tokens in flight.

Arg max, next token and position stay in GPU buffers, so every token replays the same commands: token n + 1 is submitted
before token n is waited for, and those after it are encoded meanwhile: one is recorded here while wgpu translates the
one before on another thread. What is encoded but not sent is dropped when decoding ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.errors import GenerationError
from volumetric.runtime.gpu.commands import Command, Copy
from volumetric.runtime.logits import INFINITE, NAN, NONE_POSSIBLE, unusable

if TYPE_CHECKING:
    from volumetric.runtime.gpu.executable import GpuExecutable
    from volumetric.runtime.gpu.state import GpuState

_DEPTH = 2
"""Tokens in flight. Two hide the way of a token to the host; more would only waste work after the end."""
_AHEAD = 2
"""Tokens encoded beyond those: one in each of the two stages of encoding."""
_UNUSABLE = {0xFFFFFFFF: NAN, 0xFFFFFFFE: INFINITE, 0xFFFFFFFD: NONE_POSSIBLE}
"""What `argmax.wgsl` writes in place of a token where the logits allow no choice."""


class TokenLoop:
    """One run of greedy decoding over a state."""

    def __init__(self, executable: GpuExecutable, state: GpuState) -> None:
        self._executable = executable
        self._state = state
        self._ids = executable.scratch.values[executable.plan.inputs[0]]
        self._ring: list[Any] = []
        self._turn = 0
        self._encoded: deque[tuple[Any, Any]] = deque()
        self._flying: deque[tuple[Any, int]] = deque()

    def run(self, token: int) -> Generator[list[int]]:
        """Yield tokens without end; the state counts exactly those fed for the tokens yielded."""
        executable, state = self._executable, self._state
        try:
            self._ring += [executable.context.buffer(16, "token", read=True) for _ in range(_DEPTH + _AHEAD + 1)]
            while True:
                if executable.loop is not self:
                    self._begin(token)
                executable.check_rows(state.position, 1)
                while len(self._flying) < _DEPTH and self._fits():
                    self._send()
                self._encode()
                buffer, number = self._flying.popleft()
                token = int(np.frombuffer(executable.executor.read(buffer, 4, number), np.uint32)[0])
                state.advance(1)
                if token in _UNUSABLE:
                    raise unusable(_UNUSABLE[token])
                expected = state.position
                yield [token]
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

    def _encode(self) -> None:
        """Have the next tokens' commands at hand."""
        executable = self._executable
        while len(self._encoded) < _AHEAD:
            buffer = self._ring[self._turn % len(self._ring)]
            self._turn += 1
            commands: list[Command] = [executable.decoding(self._state), Copy(self._ids, 0, buffer, 0, 4)]
            self._encoded.append((buffer, executable.executor.begin(commands)))

    def _send(self) -> None:
        if not self._encoded:
            self._encode()
        buffer, begun = self._encoded.popleft()
        self._flying.append((buffer, self._executable.executor.send(begun)))

    def _close(self) -> None:
        executable = self._executable
        if executable.loop is self:
            executable.loop = None
        self._flying.clear()
        for _, begun in self._encoded:
            executable.executor.discard(begun)
        self._encoded.clear()
        for buffer in self._ring:
            executable.context.free(buffer)
        self._ring.clear()
