"""Rounds: one call of the device for all that take part, and a draw for each whose rows end with logits."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from volumetric._typing import F32Array
from volumetric.errors import GenerationError
from volumetric.generate.sampler import Draw, draw_together
from volumetric.generate.scheduling.live import Live
from volumetric.runtime.device import Drawing, output_of
from volumetric.runtime.logits import most_likely

if TYPE_CHECKING:
    from volumetric.runtime.device import Executable

Draws: TypeAlias = list[tuple[Live, "Draw | GenerationError"]]


class Rounds:
    """Calls of an executable.

    While the same sequences decode and nothing else is to do, a device that can choose their tokens keeps the loop: all
    take the likeliest ones, or it draws. It may then have run ahead, so `stop` comes before whoever looks at a state.

    Parameters
    ----------
    executable : runs the calls
    """

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._together: tuple[Live, ...] = ()
        self._loop: Generator[list[int]] | None = None

    def run(self, taking: Sequence[tuple[Live, int]], follow: Callable[[Live], list[Live]]) -> Draws:
        """Compute the next rows of each, as many as are said, and draw where they end with logits.

        Parameters
        ----------
        follow : gives the texts that wait for a prompt, which is computed, their states, and returns them

        Raises
        ------
        VolumetricError : the device has failed; what the states hold is not known
        """
        if all(live.decoding for live, _ in taking):
            together = tuple(live for live, _ in taking)
            if (together == self._together and self._loop is not None) or self._begin(together):
                return self._next(together)
        self.stop()
        return self._call(taking, follow)

    def stop(self) -> None:
        """Let go of the states: each holds the tokens that were fed, and no more."""
        loop, self._loop, self._together = self._loop, None, ()
        if loop is not None:
            loop.close()

    def _begin(self, together: tuple[Live, ...]) -> bool:
        """Let the device choose the tokens of some sequences, if it can."""
        states, last = [live.state for live in together], [live.ids[-1] for live in together]
        if all(live.likeliest for live in together):
            self.stop()
            self._together, self._loop = together, self._executable.greedy(states, last)
            return True
        if not isinstance(self._executable, Drawing) or not all(live.drawable for live in together):
            return False
        choosers = [live.transcript.sampler.chooser for live in together]
        if not self._executable.draws(choosers):
            return False
        self.stop()
        self._together, self._loop = together, self._executable.drawn(states, last, choosers)
        return True

    def _next(self, together: tuple[Live, ...]) -> Draws:
        began = time.perf_counter()
        assert self._loop is not None
        try:
            tokens = next(self._loop)
        except GenerationError as error:
            self.stop()
            guilty = together if error.sequence is None else [together[error.sequence]]
            for live in together:
                _go_back(live)
            return [(live, error) for live in guilty]
        seconds = time.perf_counter() - began
        for live in together:
            live.fed += 1
            live.transcript.count_time(seconds)
        return [(live, Draw(token=token)) for live, token in zip(together, tokens, strict=True)]

    def _call(self, taking: Sequence[tuple[Live, int]], follow: Callable[[Live], list[Live]]) -> Draws:
        """All wait for the call, so its time counts for each."""
        began = time.perf_counter()
        pieces = [live.piece(rows) for live, rows in taking]
        outputs = [output_of(found) for found in self._executable.run(pieces)]
        seconds = time.perf_counter() - began
        ready: list[tuple[Live, F32Array]] = []
        for (live, rows), piece, logits in zip(taking, pieces, outputs, strict=True):
            if not live.decoding:
                live.transcript.prompt_seconds += seconds
            live.fed += rows
            if piece.wanted != "last":
                continue
            ready.append((live, logits[-1]))
            ready += [(follower, logits[-1]) for follower in follow(live)]
        draws = _draw(ready)
        seconds = time.perf_counter() - began
        for live in {id(live): live for live, _ in (*taking, *ready)}.values():
            live.transcript.count_time(seconds)
        return [(live, drawn) for (live, _), drawn in zip(ready, draws, strict=True)]


def _go_back(live: Live) -> None:
    """Make the last token missing again: it may be fed already, while the token after it was not told."""
    state, before = live.state, len(live.ids) - 1
    if state is None or state.position == before:
        return
    state.trim(before if before >= state.reach else 0)
    live.fed = state.position


def _draw(ready: Sequence[tuple[Live, F32Array]]) -> list[Draw | GenerationError]:
    """Draw from the logits of each sequence: all that sample in one call."""
    drawn: dict[int, Draw | GenerationError] = {}
    sampled: list[tuple[Live, F32Array]] = []
    for live, logits in ready:
        try:
            if live.likeliest:
                drawn[id(live)] = Draw(token=most_likely(logits))
            else:
                allowed = logits if live.constraint is None else live.constraint.allow(logits)
                sampled.append((live, allowed))
        except GenerationError as error:
            drawn[id(live)] = error
    if sampled:
        found = draw_together([live.transcript.sampler for live, _ in sampled], [logits for _, logits in sampled])
        drawn |= {id(live): _taken(live, one) for (live, _), one in zip(sampled, found, strict=True)}
    return [drawn[id(live)] for live, _ in ready]


def _taken(live: Live, drawn: Draw | GenerationError) -> Draw | GenerationError:
    """Let the form of a text go on by its token."""
    if live.constraint is not None and isinstance(drawn, Draw):
        try:
            live.constraint.take(drawn.token)
        except GenerationError as error:
            return error
    return drawn
