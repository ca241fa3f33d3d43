"""Rounds: one device call for all participating sequences, and a draw for each whose rows end with logits."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import DeviceError, GenerationError
from volumetric.generate.sampler import Draw, draw_together
from volumetric.generate.scheduling.generation_sequence import GenerationSequence
from volumetric.generate.scheduling.token_batch import LoopedTexts, StepOutcomes
from volumetric.generate.token_events import TokenEvent
from volumetric.run.device import SequenceRows, State, TokenSampling, output_of
from volumetric.run.logits import argmax_token

if TYPE_CHECKING:
    from volumetric.run.device import Executable, TokenSampler


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
        self._texts: LoopedTexts | None = None
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
        together = tuple([sequence for sequence, _ in taking])
        if not any(sequence.guesses for sequence in together):
            # Sequences of a loop decode until it is stopped.
            if self._loop is not None and together == self._together:
                return self._next()
            if all(sequence.decoding for sequence in together) and self._begin(together):
                return self._next()
        self.stop()
        return self._call(taking, follow)

    def next_token(self, sequence: GenerationSequence) -> StepOutcomes:
        """Compute the next token of a single decoding sequence without draft tokens.

        Raises
        ------
        VolumetricError : see `run`
        """
        if self._loop is None or self._together != (sequence,):
            return self.run([(sequence, 1)])
        return self._next()

    @property
    def looping(self) -> Sequence[GenerationSequence]:
        """The sequences that decode in the device's loop; none if it does not run."""
        return self._together if self._loop is not None else ()

    def sync(self) -> None:
        """Write the tokens of the device's loop into the sequences and transcripts; `stop` does so, too."""
        if self._texts is not None:
            self._texts.sync()

    def stop(self) -> None:
        """End the device's loop: each state then contains exactly the tokens fed."""
        loop, self._loop, self._together = self._loop, None, ()
        texts, self._texts = self._texts, None
        if texts is not None:
            texts.close()
        if loop is not None:
            loop.close()

    def _begin(self, together: tuple[GenerationSequence, ...]) -> bool:
        """Start a loop in which the device chooses the tokens of the sequences, if it can."""
        self.stop()
        states, last = [sequence.state for sequence in together], [sequence.ids[-1] for sequence in together]
        if all(sequence.likeliest for sequence in together):
            self._together, self._loop = together, self._executable.greedy(states, last)
            return True
        if self._drawing is None or not all(sequence.drawable for sequence in together):
            return False
        choosers = [sequence.transcript.sampler.chooser for sequence in together]
        if not self._drawing.can_sample(choosers):
            return False
        self._together, self._loop = together, self._drawing.sample_loop(states, last, choosers)
        return True

    def _next(self) -> StepOutcomes:
        began, together = time.perf_counter(), self._together
        assert self._loop is not None
        if self._texts is None:
            self._texts = LoopedTexts(together)
        try:
            tokens = next(self._loop)
        except GenerationError as error:
            self.stop()
            guilty = together if error.sequence is None else [together[error.sequence]]
            for sequence in together:
                if sequence not in guilty:
                    _go_back(sequence)
                elif sequence.state is not None:
                    sequence.fed = sequence.state.position
            return StepOutcomes([(sequence, error) for sequence in guilty])
        return self._texts.take(tokens, time.perf_counter() - began)

    def _call(
        self,
        taking: Sequence[tuple[GenerationSequence, int]],
        follow: Callable[[GenerationSequence], list[GenerationSequence]],
    ) -> StepOutcomes:
        """Run one call. All sequences wait for it, so that its time counts for each."""
        began = time.perf_counter()
        before = dict(_copies(sequence for sequence, _ in taking if sequence.guesses))
        pieces = [sequence.sequence_rows(rows) for sequence, rows in taking]
        outputs = self._outputs([sequence for sequence, _ in taking], pieces)
        seconds = time.perf_counter() - began
        ready: list[tuple[GenerationSequence, F32Array]] = []
        picked: list[tuple[GenerationSequence, int | GenerationError]] = []
        for (sequence, rows), piece, output in zip(taking, pieces, outputs, strict=True):
            if not sequence.decoding:
                sequence.transcript.prompt_seconds += seconds
            sequence.fed += rows
            sequence.transcript.drafted += len(sequence.guesses)
            if piece.output_rows == "none":
                continue
            if isinstance(output, np.ndarray):
                if sequence.scored:
                    output = sequence.score(output)
                    if sequence.missing:
                        continue
                ready.append((sequence, output))
                ready += [(follower, output) for follower in follow(sequence)]
            else:
                picked.append((sequence, output))
        outcomes = _draw_all(ready, [sequence for sequence, _ in taking], began)
        outcomes.single += [
            (sequence, _advance(sequence, Draw(token=one)) if isinstance(one, int) else one) for sequence, one in picked
        ]
        self._settle([sequence for sequence, _ in taking if sequence.guesses], before)
        return outcomes

    def _outputs(
        self, sequences: Sequence[GenerationSequence], pieces: Sequence[SequenceRows]
    ) -> Sequence[F32Array | int | GenerationError]:
        """Run sequence rows; return the requested logits of each, or the device's choice from them."""
        device = self._drawing
        if device is not None and device.can_pick and all(piece.output_rows != "all" for piece in pieces):
            choosers: list[TokenSampler | Literal["logits"] | None] = [sequence.chooser for sequence in sequences]
            if any(one != "logits" for one in choosers):
                none = np.empty((0, 0), np.float32)
                picked = device.sample(pieces, choosers)
                return [none if one is None else one[None] if isinstance(one, np.ndarray) else one for one in picked]
        return [output_of(outputs) for outputs in self._executable.run(pieces)]

    def _settle(self, guessed: Sequence[GenerationSequence], before: Mapping[int, State]) -> None:
        """Truncate states to the accepted tokens, without the last one, as draft tokens may have been rejected."""
        again: list[SequenceRows] = []
        for sequence in guessed:
            assert sequence.length is not None
            sequence.length.count(
                len(sequence.guesses), min(len(sequence.guesses), max(0, len(sequence.ids) - sequence.fed - 1))
            )
            sequence.guesses, sequence.fed = [], len(sequence.ids) - 1
            state = sequence.state
            assert state is not None
            if sequence.fed >= state.oldest_restorable:
                state.trim(sequence.fed)
            elif sequence.fed < state.position:
                sequence.state = state = before[id(sequence)]
                if rows := sequence.ids[state.position : sequence.fed]:
                    again.append(SequenceRows(state, np.array(rows, np.int32), "none"))
        if again:
            self._executable.run(again)


def _copies(guessed: Iterable[GenerationSequence]) -> Iterator[tuple[int, State]]:
    """Copy states that cannot be truncated after rejected draft tokens; without memory for it, drop the draft."""
    for sequence in guessed:
        assert sequence.state is not None
        if sequence.state.forgets:
            try:
                yield id(sequence), sequence.state.fork()
            except DeviceError:
                sequence.guesses = []


def _go_back(sequence: GenerationSequence) -> None:
    """Truncate the state before the last token: it may already be fed, although its successor was not returned."""
    state, before = sequence.state, len(sequence.ids) - 1
    if state is None or state.position == before:
        return
    state.trim(before if before >= state.oldest_restorable else 0)
    sequence.fed = state.position


def _draw_all(
    ready: Sequence[tuple[GenerationSequence, F32Array]], waited: Sequence[GenerationSequence], began: float
) -> StepOutcomes:
    """Draw from the first logits of each, and from the next ones after accepted draft tokens."""
    outcomes = StepOutcomes()
    place, counted = 0, {id(sequence): sequence for sequence in (*waited, *(sequence for sequence, _ in ready))}
    while counted:
        draws = _draw([(sequence, logits[place]) for sequence, logits in ready])
        now = time.perf_counter()
        for sequence in counted.values():
            sequence.transcript.count_time(now - began)
        began = now
        right: list[tuple[GenerationSequence, F32Array]] = []
        for (sequence, logits), drawn in zip(ready, draws, strict=True):
            if isinstance(drawn, GenerationError):
                outcomes.single.append((sequence, drawn))
                continue
            same = sequence.guesses[place : place + 1] == [drawn.token]
            sequence.transcript.accepted += same
            event = _advance(sequence, drawn)
            outcomes.single.append((sequence, event))
            if same and event.finish_reason is None:
                right.append((sequence, logits))
        ready, counted, place = right, {id(sequence): sequence for sequence, _ in right}, place + 1
    return outcomes


def _advance(sequence: GenerationSequence, draw: Draw) -> TokenEvent:
    """Append a token to a sequence."""
    sequence.ids.append(draw.token)
    return sequence.transcript.take(draw)


def _draw(ready: Sequence[tuple[GenerationSequence, F32Array]]) -> list[Draw | GenerationError]:
    """Draw from the logits of each sequence; all sampling ones share one call of the kernel."""
    drawn: dict[int, Draw | GenerationError] = {}
    sampled: list[tuple[GenerationSequence, F32Array]] = []
    for sequence, logits in ready:
        try:
            if sequence.likeliest:
                drawn[id(sequence)] = Draw(token=argmax_token(logits))
            else:
                allowed = logits if sequence.constraint is None else sequence.constraint.allow(logits)
                sampled.append((sequence, allowed))
        except GenerationError as error:
            drawn[id(sequence)] = error
    if sampled:
        draws = draw_together(
            [sequence.transcript.sampler for sequence, _ in sampled], [logits for _, logits in sampled]
        )
        drawn |= {
            id(sequence): _advance_constraint(sequence, one) for (sequence, _), one in zip(sampled, draws, strict=True)
        }
    return [drawn[id(sequence)] for sequence, _ in ready]


def _advance_constraint(sequence: GenerationSequence, drawn: Draw | GenerationError) -> Draw | GenerationError:
    """Advance the constraint of a text by its token."""
    if sequence.constraint is not None and isinstance(drawn, Draw):
        try:
            sequence.constraint.take(drawn.token)
        except GenerationError as error:
            return error
    return drawn
