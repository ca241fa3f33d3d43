"""Greedy decoding on the device, two tokens in flight, of one sequence or several.

Arg max, next token and position stay in GPU buffers, so every token replays the same commands: token n + 1 is submitted
before token n is waited for, and those after it are encoded meanwhile: one is recorded here while wgpu translates the
one before on another thread. The commands know no sequence: what is encoded when decoding ends serves the next loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.errors import GenerationError
from volumetric.kernels.gpu.dispatch import Rows
from volumetric.runtime.gpu.calls import NEAR_PAGES, Place
from volumetric.runtime.gpu.commands import Command, Copy
from volumetric.runtime.logits import INFINITE, NAN, NONE_POSSIBLE, unusable

if TYPE_CHECKING:
    from volumetric.runtime.gpu.executable import GpuExecutable
    from volumetric.runtime.gpu.recordings import Recordings
    from volumetric.runtime.gpu.state import GpuState

_DEPTH = 2
"""Tokens in flight. Two hide the way of a token to the host; more would only waste work after the end."""
_AHEAD = 2
"""Tokens encoded beyond those: one in each of the two stages of encoding."""
_UNUSABLE = {0xFFFFFFFF: NAN, 0xFFFFFFFE: INFINITE, 0xFFFFFFFD: NONE_POSSIBLE}
"""What `argmax.wgsl` writes in place of a token where the logits allow no choice."""


class EncodedTokens:
    """Commands of the next tokens of so many sequences, and the buffers that bring their ids to the host."""

    def __init__(self, recordings: Recordings, rows: Rows) -> None:
        self.rows = rows
        self._recordings = recordings
        self._ids = recordings.scratch.values[recordings.plan.inputs[0]]
        self._encoded: deque[tuple[Any, Any]] = deque()
        count = _DEPTH + _AHEAD + 1
        self._ring = [recordings.context.buffer(4 * rows.total, "tokens", read=True) for _ in range(count)]
        self._turn = 0

    def encode(self) -> None:
        """Have the next tokens' commands at hand."""
        while len(self._encoded) < _AHEAD:
            buffer = self._ring[self._turn % len(self._ring)]
            self._turn += 1
            token = self._recordings.next_tokens(self.rows)
            commands: list[Command] = [token, Copy(self._ids, 0, buffer, 0, 4 * self.rows.total)]
            self._encoded.append((buffer, self._recordings.executor.begin(commands)))

    def send(self) -> tuple[Any, int]:
        """Submit the next token; returns what `read` wants."""
        if not self._encoded:
            self.encode()
        buffer, begun = self._encoded.popleft()
        return buffer, self._recordings.executor.send(begun)

    def read(self, sent: tuple[Any, int]) -> list[int]:
        """Wait for the ids of a token."""
        buffer, number = sent
        data = self._recordings.executor.read(buffer, 4 * self.rows.total, number)
        return np.frombuffer(data, np.uint32).tolist()

    def close(self) -> None:
        """Drop what is encoded, and the buffers."""
        while self._encoded:
            self._recordings.drop(self._encoded.popleft()[1])
        for buffer in self._ring:
            self._recordings.context.free(buffer)
        self._ring.clear()


class TokenLoop:
    """One run of greedy decoding over states."""

    def __init__(self, executable: GpuExecutable, states: Sequence[GpuState]) -> None:
        self._executable = executable
        self._states = list(states)
        self._recordings = executable.recordings
        self._ids = executable.recordings.scratch.values[executable.plan.inputs[0]]
        self._flying: deque[tuple[Any, int]] = deque()
        self._expected: list[int] = []
        self._near: list[int] = []
        self._rows = executable.recordings.count(self._places())

    def run(self, tokens: Sequence[int]) -> Generator[list[int]]:
        """Yield tokens without end; the states count exactly those fed for the tokens yielded."""
        executable = self._executable
        try:
            while True:
                with executable.lock:
                    tokens = self._next(tokens)
                yield list(tokens)
        finally:
            with executable.lock:
                if self._recordings.owner is self:
                    self._recordings.owner = None
                self._flying.clear()

    def _next(self, tokens: Sequence[int]) -> list[int]:
        executable = self._executable
        positions = [state.position for state in self._states]
        if positions != self._expected and self._recordings.owner is self:
            self._recordings.owner = None
        executable.check_rows(max(positions), 1)
        depth = self._depth(max(positions))
        executable.pool.reserve((state.held, state.position, state.position + depth) for state in self._states)
        encoded = executable.encoded_tokens(self._rows)
        if self._recordings.owner is not self:
            self._begin(tokens)
        if len(positions) == 1 and (near := self._states[0].held.pages[:NEAR_PAGES]) != self._near:
            self._recordings.place_near(near)
            self._near = near
        while len(self._flying) < depth:
            self._flying.append(encoded.send())
        encoded.encode()
        found = encoded.read(self._flying.popleft())
        for state in self._states:
            state.advance(1)
        for place, token in enumerate(found):
            if token in _UNUSABLE:
                raise unusable(_UNUSABLE[token], sequence=place)
        self._expected = [state.position for state in self._states]
        return found

    def _depth(self, position: int) -> int:
        """Tokens that may be in flight: those after the first one too must have a place."""
        for depth in range(_DEPTH, 1, -1):
            try:
                self._executable.check_rows(position, depth)
            except GenerationError:
                continue
            return depth
        return 1

    def _places(self) -> list[Place]:
        return [Place(state.held.line, state.position, 1, state.held.pages) for state in self._states]

    def _begin(self, tokens: Sequence[int]) -> None:
        """Set tokens and positions on the device. What was in flight before wrote only rows that are written again."""
        self._flying.clear()
        self._recordings.place(self._places())
        self._recordings.context.write(self._ids, np.array(tokens, np.uint32))
        self._recordings.owner = self
