"""Decoding on the GPU, two tokens in flight, for one sequence or several, greedy or sampled.

Argmax or sampling, next token and position stay in GPU buffers, so every token replays the same commands. Token n + 1
is submitted before waiting for token n, and those after it are encoded meanwhile: with wgpu one is recorded here while
another thread translates the one before, with Dawn that thread encodes both. The commands do not depend on the
sequence: commands left over at the end of decoding serve the next loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import GenerationError
from volumetric.devices.gpu.call_schedule import NEAR_PAGES, SequenceSpan
from volumetric.devices.gpu.draw_plans import AHEAD, UNCERTAIN, DrawnRow, Ways, draw_kinds
from volumetric.devices.gpu.gpu_commands import Command, CopyCommand
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.run.logits import INFINITE, NAN, NONE_POSSIBLE, unusable_logits_error

if TYPE_CHECKING:
    from volumetric.devices.gpu.gpu_state import GpuState
    from volumetric.devices.gpu.page_pool import PagePool
    from volumetric.devices.gpu.recording_cache import RecordingCache
    from volumetric.run.device import TokenSampler

_DEPTH = 2
"""Tokens in flight. Two hide the latency of passing a token to the host; more would only waste work after the end."""
_AHEAD = 2
"""Tokens encoded beyond those: one in each of the two stages of encoding."""
UNUSABLE = {0xFFFFFFFF: NAN, 0xFFFFFFFE: INFINITE, 0xFFFFFFFD: NONE_POSSIBLE}
"""Value that `argmax.wgsl` writes instead of a token if the logits allow no choice."""


class EncodedTokens:
    """Commands of the next tokens of several sequences, and the buffers that pass their ids to the host."""

    def __init__(self, recordings: RecordingCache, rows: CallRows, ways: Ways | None) -> None:
        self.rows: CallRows = rows
        self.ways: Ways | None = ways
        self._recordings = recordings
        self._ids = recordings.scratch.buffers[recordings.scratch.values[recordings.input]]
        self._encoded: deque[tuple[Any, Any]] = deque()
        count = _DEPTH + _AHEAD + 1
        self._ring = [recordings.context.buffer(4 * rows.total, "tokens", read=True) for _ in range(count)]
        self._turn = 0

    def encode(self) -> None:
        """Encode the commands of the next tokens, unless they are already encoded."""
        while len(self._encoded) < _AHEAD:
            buffer = self._ring[self._turn % len(self._ring)]
            self._turn += 1
            token = self._recordings.next_tokens(self.rows, self.ways)
            commands: list[Command] = [token, CopyCommand(self._ids, 0, buffer, 0, 4 * self.rows.total)]
            self._encoded.append((buffer, self._recordings.executor.begin(commands)))

    def send(self) -> tuple[Any, int]:
        """Submit the next token; returns the argument for `read`."""
        if not self._encoded:
            self.encode()
        executor = self._recordings.executor
        buffer, begun = self._encoded[0]
        try:
            return buffer, executor.send(begun)
        finally:
            if not executor.must_be_sent(begun):  # else an interrupt came first: it serves the next loop
                self._encoded.popleft()

    def read(self, sent: tuple[Any, int]) -> list[int]:
        """Wait for the ids of a token."""
        buffer, number = sent
        data = self._recordings.executor.read(buffer, 4 * self.rows.total, number)
        return np.frombuffer(data, np.uint32).tolist()

    def close(self) -> None:
        """Drop the encoded commands, and the buffers."""
        while self._encoded:
            self._recordings.drop(self._encoded.popleft()[1])
        for buffer in self._ring:
            self._recordings.context.free(buffer)
        self._ring.clear()


class Decoder:
    """Greedy decoding of one executable.

    Parameters
    ----------
    recordings : its commands
    pool : pages and fixed states; its lock is held while a token is computed
    check_rows : raises `GenerationError` unless so many rows fit after a position
    """

    def __init__(self, recordings: RecordingCache, pool: PagePool, check_rows: Callable[[int, int], None]) -> None:
        self.recordings = recordings
        self.pool = pool
        self.check_rows = check_rows
        self._encoded: EncodedTokens | None = None

    def run(
        self,
        states: Sequence[GpuState],
        tokens: Sequence[int],
        constant: Mapping[str, NDArray[Any]],
        choosers: Sequence[TokenSampler | None] | None = None,
    ) -> Generator[list[int]]:
        """Yield tokens without end; the states count exactly the tokens that were fed for the yielded ones.

        Parameters
        ----------
        constant : inputs other than the ids, a row for each state
        choosers : how tokens are sampled; empty for the argmax of each
        """
        return TokenLoop(self, states, constant, choosers).run(tokens)

    def encoded_tokens(self, rows: CallRows, ways: Ways | None) -> EncodedTokens:
        """Commands of the next tokens of so many sequences; those of the last such number are kept."""
        if ways is not None:
            self.reserve_rows(rows.total)
        if self._encoded is None or (self._encoded.rows, self._encoded.ways) != (rows, ways):
            self.drop()
            self._encoded = EncodedTokens(self.recordings, rows, ways)
        return self._encoded

    def reserve_rows(self, rows: int, changes: int = 0) -> None:
        """Reserve room to sample the tokens of so many rows, with so many scores changed before."""
        drawing = self.recordings.drawing
        if drawing.rows < rows or drawing.changes < changes:
            self.drop()
            self.recordings.unbind()
            drawing.make(max(rows, drawing.rows), max(changes, drawing.changes))

    def drop(self) -> None:
        """Drop the encoded commands."""
        if self._encoded is not None:
            self._encoded.close()
            self._encoded = None


class TokenLoop:
    """One decoding run over states."""

    def __init__(
        self,
        decoder: Decoder,
        states: Sequence[GpuState],
        constant: Mapping[str, NDArray[Any]],
        choosers: Sequence[TokenSampler | None] | None,
    ) -> None:
        self._decoder = decoder
        self._states = list(states)
        self._constant = constant
        self._recordings = recordings = decoder.recordings
        self._ids = recordings.scratch.buffers[recordings.scratch.values[recordings.input]]
        self._submitted: deque[tuple[Any, int]] = deque()
        self._expected: list[int] = []
        self._near: list[int] = []
        self._rows = recordings.count(self._sequence_spans())
        self._drawn_rows = [] if choosers is None else [recordings.drawing.row(chooser) for chooser in choosers]
        self._ways = draw_kinds(self._drawn_rows) if self._drawn_rows else None
        self._written_until = 0

    def run(self, tokens: Sequence[int]) -> Generator[list[int]]:
        """Yield tokens without end; the states count exactly the tokens that were fed for the yielded ones."""
        lock = self._decoder.pool.lock
        try:
            while True:
                with lock:
                    tokens = self._next(tokens)
                yield list(tokens)
        finally:
            with lock:
                if self._recordings.owner is self:
                    self._recordings.owner = None
                self._submitted.clear()

    def _next(self, tokens: Sequence[int]) -> list[int]:
        """Run the next step of all sequences, with later ones submitted ahead; returns a token for each."""
        decoder = self._decoder
        positions = [state.position for state in self._states]
        if positions != self._expected and self._recordings.owner is self:
            self._recordings.owner = None
        decoder.check_rows(max(positions), 1)
        depth = self._depth(max(positions))
        decoder.pool.reserve((state.pages, state.position, state.position + depth) for state in self._states)
        encoded = decoder.encoded_tokens(self._rows, self._ways)
        if self._recordings.owner is not self:
            self._begin(tokens)
        elif self._drawn_rows and positions[0] - self._written_until >= AHEAD:
            self._write_draws()
        if (
            len(positions) == 1
            and (near := decoder.pool.control_block_pages(self._states[0].pages)[:NEAR_PAGES]) != self._near
        ):
            self._recordings.place_near(near)
            self._near = near
        while len(self._submitted) < depth:
            self._submitted.append(encoded.send())
        encoded.encode()
        next_tokens = encoded.read(self._submitted.popleft())
        for state in self._states:
            state.advance(1)
        for place, token in enumerate(next_tokens):
            if token in UNUSABLE:
                raise unusable_logits_error(UNUSABLE[token], sequence=place)
        self._expected = [state.position for state in self._states]
        if not self._drawn_rows:
            return next_tokens
        rows = enumerate(zip(self._drawn_rows, next_tokens, strict=True))
        return [self._settle_token(row, place, token) for place, (row, token) in rows]

    def _settle_token(self, row: DrawnRow, place: int, token: int) -> int:
        """Return the token of a row if it can be sampled; a row left to the host restarts the loop."""
        if token == UNCERTAIN and row.chooser is not None:
            self._recordings.owner = None
            return row.chooser.choose(self._recordings.drawing.host_logits([place])[place])
        if row.chooser is not None:
            row.chooser.record_token(token)
        return token

    def _write_draws(self) -> None:
        """Write the random numbers of the next draws to the device."""
        for row, state in zip(self._drawn_rows, self._states, strict=True):
            row.write_randoms(state.position)
        self._recordings.drawing.write_rows(self._drawn_rows)
        self._written_until = self._states[0].position

    def _depth(self, position: int) -> int:
        """Number of tokens that may be in flight: tokens after the first need room, too."""
        for depth in range(_DEPTH, 1, -1):
            try:
                self._decoder.check_rows(position, depth)
            except GenerationError:
                continue
            return depth
        return 1

    def _sequence_spans(self) -> list[SequenceSpan]:
        near = self._decoder.pool.control_block_pages
        return [SequenceSpan(state.pages.line, state.position, 1, near(state.pages)) for state in self._states]

    def _begin(self, tokens: Sequence[int]) -> None:
        """Set tokens and positions on the device. Tokens that were in flight wrote only rows that are overwritten."""
        self._submitted.clear()
        self._recordings.place_rows(self._sequence_spans())
        self._recordings.context.write(self._ids, np.array(tokens, np.uint32))
        for name, rows in self._constant.items():
            self._recordings.write(self._recordings.inputs[name], rows)
        if self._drawn_rows:
            self._write_draws()
        self._recordings.owner = self
