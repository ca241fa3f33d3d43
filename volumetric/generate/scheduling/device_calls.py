"""Rounds: one device call for all participating sequences, and a draw for each whose rows end with logits."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import DeviceError, GenerationError
from volumetric.generate.sampler import Draw, draw_together
from volumetric.generate.scheduling.generation_sequence import GenerationSequence
from volumetric.generate.token_events import TokenEvent
from volumetric.run.device import SequenceRows, State, TokenSampling, output_of
from volumetric.run.logits import argmax_token

if TYPE_CHECKING:
    from volumetric.run.device import Executable, TokenSampler

StepOutcomes: TypeAlias = list[tuple[GenerationSequence, "TokenEvent | GenerationError"]]


class DeviceCalls:
    """Calls an executable.

    While the same sequences decode without other work, a device that can choose their tokens, by arg max or by drawing,
    runs the loop. It may then have run ahead, so that `stop` must be called before a state is read.

    Parameters
    ----------
    executable : runs the calls
    """

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        # Computed once: a check against a protocol takes 20 µs.
        self._drawing = executable if isinstance(executable, TokenSampling) else None
        self._together: tuple[GenerationSequence, ...] = ()
        self._loop: Generator[list[int]] | None = None

    def run(
        self,
        taking: Sequence[tuple[GenerationSequence, int]],
        follow: Callable[[GenerationSequence], list[GenerationSequence]] = lambda _: [],
    ) -> StepOutcomes:
        """Compute the given number of rows of each sequence, and draw if they end with logits.

        After accepted draft tokens the next token is drawn, too. Drawn tokens are appended to the transcripts.

        Parameters
        ----------
        follow : creates the states of a computed prompt's followers, and returns them; None: there are no followers

        Raises
        ------
        VolumetricError : the device has failed; the contents of the states are undefined
        """
        if all(live.decoding and not live.guesses for live, _ in taking):
            together = tuple(live for live, _ in taking)
            if (together == self._together and self._loop is not None) or self._begin(together):
                return self._next(together)
        self.stop()
        return self._call(taking, follow)

    def next_token(self, live: GenerationSequence) -> StepOutcomes:
        """Compute the next token of a single decoding sequence without draft tokens.

        Raises
        ------
        VolumetricError : see `run`
        """
        if self._loop is None or self._together != (live,):
            return self.run([(live, 1)])
        return self._next(self._together)

    def stop(self) -> None:
        """End the device's loop: each state then contains exactly the tokens fed."""
        loop, self._loop, self._together = self._loop, None, ()
        if loop is not None:
            loop.close()

    def _begin(self, together: tuple[GenerationSequence, ...]) -> bool:
        """Start a loop in which the device chooses the tokens of the sequences, if it can."""
        states, last = [live.state for live in together], [live.ids[-1] for live in together]
        if all(live.likeliest for live in together):
            self.stop()
            self._together, self._loop = together, self._executable.greedy(states, last)
            return True
        if self._drawing is None or not all(live.drawable for live in together):
            return False
        choosers = [live.transcript.sampler.chooser for live in together]
        if not self._drawing.can_sample(choosers):
            return False
        self.stop()
        self._together, self._loop = together, self._drawing.sample_loop(states, last, choosers)
        return True

    def _next(self, together: tuple[GenerationSequence, ...]) -> StepOutcomes:
        began = time.perf_counter()
        assert self._loop is not None
        try:
            tokens = next(self._loop)
        except GenerationError as error:
            self.stop()
            guilty = together if error.sequence is None else [together[error.sequence]]
            for live in together:
                if live not in guilty:
                    _go_back(live)
                elif live.state is not None:
                    live.fed = live.state.position
            return [(live, error) for live in guilty]
        seconds = time.perf_counter() - began
        for live in together:
            live.fed += 1
            live.transcript.count_time(seconds)
        return [(live, _advance(live, Draw(token=token))) for live, token in zip(together, tokens, strict=True)]

    def _call(
        self,
        taking: Sequence[tuple[GenerationSequence, int]],
        follow: Callable[[GenerationSequence], list[GenerationSequence]],
    ) -> StepOutcomes:
        """Run one call. All sequences wait for it, so that its time counts for each."""
        began = time.perf_counter()
        before = dict(_copies(live for live, _ in taking if live.guesses))
        pieces = [live.sequence_rows(rows) for live, rows in taking]
        outputs = self._outputs([live for live, _ in taking], pieces)
        seconds = time.perf_counter() - began
        ready: list[tuple[GenerationSequence, F32Array]] = []
        picked: list[tuple[GenerationSequence, int | GenerationError]] = []
        for (live, rows), piece, output in zip(taking, pieces, outputs, strict=True):
            if not live.decoding:
                live.transcript.prompt_seconds += seconds
            live.fed += rows
            live.transcript.drafted += len(live.guesses)
            if piece.output_rows == "none":
                continue
            if isinstance(output, np.ndarray):
                if live.scored:
                    output = live.score(output)
                    if live.missing:
                        continue
                ready.append((live, output))
                ready += [(follower, output) for follower in follow(live)]
            else:
                picked.append((live, output))
        outcomes = _draw_all(ready, [live for live, _ in taking], began)
        outcomes += [(live, _advance(live, Draw(token=one)) if isinstance(one, int) else one) for live, one in picked]
        self._settle([live for live, _ in taking if live.guesses], before)
        return outcomes

    def _outputs(
        self, lives: Sequence[GenerationSequence], pieces: Sequence[SequenceRows]
    ) -> Sequence[F32Array | int | GenerationError]:
        """Run sequence rows; return the requested logits of each, or the device's choice from them."""
        device = self._drawing
        if device is not None and device.can_pick and all(piece.output_rows != "all" for piece in pieces):
            choosers: list[TokenSampler | Literal["logits"] | None] = [live.chooser for live in lives]
            if any(one != "logits" for one in choosers):
                none = np.empty((0, 0), np.float32)
                picked = device.sample(pieces, choosers)
                return [none if one is None else one[None] if isinstance(one, np.ndarray) else one for one in picked]
        return [output_of(outputs) for outputs in self._executable.run(pieces)]

    def _settle(self, guessed: Sequence[GenerationSequence], before: Mapping[int, State]) -> None:
        """Truncate states to the accepted tokens, without the last one, as draft tokens may have been rejected."""
        again: list[SequenceRows] = []
        for live in guessed:
            assert live.length is not None
            live.length.count(len(live.guesses), min(len(live.guesses), max(0, len(live.ids) - live.fed - 1)))
            live.guesses, live.fed = [], len(live.ids) - 1
            state = live.state
            assert state is not None
            if live.fed >= state.oldest_restorable:
                state.trim(live.fed)
            elif live.fed < state.position:
                live.state = state = before[id(live)]
                if rows := live.ids[state.position : live.fed]:
                    again.append(SequenceRows(state, np.array(rows, np.int32), "none"))
        if again:
            self._executable.run(again)


def _copies(guessed: Iterable[GenerationSequence]) -> Iterator[tuple[int, State]]:
    """Copy states that cannot be truncated after rejected draft tokens; without memory for it, drop the draft."""
    for live in guessed:
        assert live.state is not None
        if live.state.forgets:
            try:
                yield id(live), live.state.fork()
            except DeviceError:
                live.guesses = []


def _go_back(live: GenerationSequence) -> None:
    """Truncate the state before the last token: it may already be fed, although its successor was not returned."""
    state, before = live.state, len(live.ids) - 1
    if state is None or state.position == before:
        return
    state.trim(before if before >= state.oldest_restorable else 0)
    live.fed = state.position


def _draw_all(
    ready: Sequence[tuple[GenerationSequence, F32Array]], waited: Sequence[GenerationSequence], began: float
) -> StepOutcomes:
    """Draw from the first logits of each, and from the next ones after accepted draft tokens."""
    outcomes: StepOutcomes = []
    place, counted = 0, {id(live): live for live in (*waited, *(live for live, _ in ready))}
    while counted:
        draws = _draw([(live, logits[place]) for live, logits in ready])
        now = time.perf_counter()
        for live in counted.values():
            live.transcript.count_time(now - began)
        began = now
        right: list[tuple[GenerationSequence, F32Array]] = []
        for (live, logits), drawn in zip(ready, draws, strict=True):
            if isinstance(drawn, GenerationError):
                outcomes.append((live, drawn))
                continue
            same = live.guesses[place : place + 1] == [drawn.token]
            live.transcript.accepted += same
            event = _advance(live, drawn)
            outcomes.append((live, event))
            if same and event.finish_reason is None:
                right.append((live, logits))
        ready, counted, place = right, {id(live): live for live, _ in right}, place + 1
    return outcomes


def _advance(live: GenerationSequence, draw: Draw) -> TokenEvent:
    """Append a token to a sequence."""
    live.ids.append(draw.token)
    return live.transcript.take(draw)


def _draw(ready: Sequence[tuple[GenerationSequence, F32Array]]) -> list[Draw | GenerationError]:
    """Draw from the logits of each sequence; all sampling ones share one call of the kernel."""
    drawn: dict[int, Draw | GenerationError] = {}
    sampled: list[tuple[GenerationSequence, F32Array]] = []
    for live, logits in ready:
        try:
            if live.likeliest:
                drawn[id(live)] = Draw(token=argmax_token(logits))
            else:
                allowed = logits if live.constraint is None else live.constraint.allow(logits)
                sampled.append((live, allowed))
        except GenerationError as error:
            drawn[id(live)] = error
    if sampled:
        draws = draw_together([live.transcript.sampler for live, _ in sampled], [logits for _, logits in sampled])
        drawn |= {id(live): _advance_constraint(live, one) for (live, _), one in zip(sampled, draws, strict=True)}
    return [drawn[id(live)] for live, _ in ready]


def _advance_constraint(live: GenerationSequence, drawn: Draw | GenerationError) -> Draw | GenerationError:
    """Advance the constraint of a text by its token."""
    if live.constraint is not None and isinstance(drawn, Draw):
        try:
            live.constraint.take(drawn.token)
        except GenerationError as error:
            return error
    return drawn
