"""Several generations at once: each call of the device takes the next rows of all of them.

Each prompt has a transcript of its own, with its own sampler, stop texts and end, exactly as if it ran alone. A call
has the last token of every sequence that decodes, and beside them a bounded piece of the prompts that are not computed
yet: a long prompt slows the others down a little instead of stopping them. One call of the sampler draws from all
logits. A sequence that ends leaves at once, and the next prompt takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from volumetric._typing import F32Array
from volumetric.errors import GenerationError, SpecError
from volumetric.generate.events import Generation, TokenEvent
from volumetric.generate.params import SamplingParams
from volumetric.generate.prompt import items_of
from volumetric.generate.sampler import Draw, draw_together
from volumetric.generate.session import PREFILL_ROWS
from volumetric.generate.transcript import Transcript
from volumetric.network import OUTPUT
from volumetric.runtime.device import Piece, State, output_of
from volumetric.runtime.logits import most_likely

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.prompt import Prompt

TOGETHER = 16
"""Sequences computed together unless told otherwise: each one has a cache, and more gain little on a CPU."""

PROMPT_ROWS = 128
"""Rows of prompts in a call beside sequences that decode, unless told otherwise. On a CPU that is the work of some ten
calls without them, on a large GPU of one: less would read the weights for little, more keeps the others waiting."""


@dataclass(slots=True, eq=False)
class _Sequence:
    """A generation that runs: how much of its prompt is computed, and where it stands on the device."""

    number: int
    state: State
    transcript: Transcript
    fed: int = 0

    @property
    def missing(self) -> int:
        """Rows of the prompt that are not computed yet."""
        return len(self.transcript.prompt) - self.fed

    def piece(self, rows: int) -> Piece:
        """Return the next `rows` rows of the prompt, or the last token."""
        if not self.missing:
            return Piece(self.state, np.array([self.transcript.last_token], np.int32), outputs=(OUTPUT,))
        ids = np.array(self.transcript.prompt[self.fed : self.fed + rows], np.int32)
        self.fed += rows
        return Piece(self.state, ids, "none" if self.missing else "last", (OUTPUT,))


_Draws: TypeAlias = list[tuple[_Sequence, Draw | GenerationError]]


class BatchStream:
    """Iterator over ``(number of the prompt, TokenEvent)``; `Model.stream_batch` makes it.

    Events of a prompt come in order; prompts take turns. The work happens inside of ``next``.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        *,
        together: int = TOGETHER,
        prompt_rows: int = PROMPT_ROWS,
        template_args: Mapping[str, Any] | None = None,
        **explicit: Any,
    ) -> None:
        for name, value in {"together": together, "prompt_rows": prompt_rows}.items():
            if not isinstance(value, Integral) or value < 1:
                raise SpecError(f"{name} must be a whole number of 1 or more, got {value!r}")
        every = items_of(prompts, "generate_batch takes a list of prompts")
        each = [params] * len(every) if params is None or not isinstance(params, Sequence) else list(params)
        if len(each) != len(every):
            raise SpecError(f"{len(every)} prompts need one set of parameters or {len(every)}, got {len(each)}")
        self._model = model
        self._prompts = [model.encode(prompt, template_args=template_args) for prompt in every]
        self._params = [model.sampling(one, **explicit) for one in each]
        for ids in self._prompts:
            model.room_after(len(ids))
        # All prompts are known to be good before the first one costs anything.
        self._together = together
        self._prompt_rows = prompt_rows
        self._transcripts: list[Transcript] = []
        self._events = self._run()

    def __iter__(self) -> Iterator[tuple[int, TokenEvent]]:
        return self

    def __next__(self) -> tuple[int, TokenEvent]:
        return next(self._events)

    def run(self) -> list[Generation]:
        """Generate to the end and return all generations, in the order of the prompts."""
        for _ in self:
            pass
        return self.generations

    @property
    def generations(self) -> list[Generation]:
        """The generations so far, of those prompts that have begun; one that could go on is ``cancelled``."""
        return [transcript.generation for transcript in self._transcripts]

    def close(self) -> None:
        """End all generations now."""
        self._events.close()

    def _run(self) -> Generator[tuple[int, TokenEvent], None, None]:
        free: list[State] = []
        live: list[_Sequence] = []
        try:
            while live or len(self._transcripts) < len(self._prompts):
                while len(live) < self._together and len(self._transcripts) < len(self._prompts):
                    live.append(self._begin(free.pop() if free else self._model.executable.new_state()))
                ended: list[_Sequence] = []
                with closing(self._rounds(tuple(live))) as rounds:
                    for draws in rounds:
                        for sequence, drawn in draws:
                            event = _told(sequence, drawn)
                            if event.finish_reason is not None:
                                ended.append(sequence)
                            yield sequence.number, event
                        if ended:
                            break
                for sequence in ended:
                    live.remove(sequence)
                    sequence.state.reset()
                    free.append(sequence.state)
        finally:
            for transcript in self._transcripts:
                transcript.end()

    def _begin(self, state: State) -> _Sequence:
        number = len(self._transcripts)
        transcript = Transcript(self._model, self._prompts[number], self._params[number])
        self._transcripts.append(transcript)
        return _Sequence(number, state, transcript)

    def _rounds(self, live: Sequence[_Sequence]) -> Generator[_Draws, None, None]:
        """Yield the draws of the next calls, for as long as nobody joins or leaves."""
        while any(sequence.missing or not sequence.transcript.params.plain_greedy for sequence in live):
            yield self._step(live)
        greedy = self._model.executable.greedy(
            [sequence.state for sequence in live], [sequence.transcript.last_token for sequence in live]
        )
        try:
            with closing(greedy):
                while True:
                    began = time.perf_counter()
                    tokens = next(greedy)
                    for sequence in live:
                        sequence.transcript.count_time(time.perf_counter() - began)
                    yield [(sequence, Draw(token=token)) for sequence, token in zip(live, tokens, strict=True)]
        except GenerationError as error:
            guilty = live if error.sequence is None else [live[error.sequence]]
            yield [(sequence, error) for sequence in guilty]

    def _step(self, live: Sequence[_Sequence]) -> _Draws:
        """Compute the next rows, and draw where they end with logits; all wait for it, so its time counts for each."""
        began = time.perf_counter()
        taking = self._share(live)
        prompting = [sequence for sequence, _ in taking if sequence.missing]
        pieces = [sequence.piece(rows) for sequence, rows in taking]
        outputs = map(output_of, self._model.executable.run(pieces))
        for sequence in prompting:
            sequence.transcript.prompt_seconds += time.perf_counter() - began
        ready = [
            (sequence, logits[-1])
            for (sequence, _), piece, logits in zip(taking, pieces, outputs, strict=True)
            if piece.wanted == "last"
        ]
        draws = _draw(ready)
        for sequence, _ in taking:
            sequence.transcript.count_time(time.perf_counter() - began)
        return [(sequence, drawn) for (sequence, _), drawn in zip(ready, draws, strict=True)]

    def _share(self, live: Sequence[_Sequence]) -> list[tuple[_Sequence, int]]:
        """Which sequences take part in the next call, and with how many rows: all that decode, and the first prompts.

        Where a session cuts a prompt, it is cut here too.
        """
        decoding = any(not sequence.missing for sequence in live)
        budget = self._prompt_rows if decoding else PREFILL_ROWS
        taking = []
        for sequence in live:
            if not sequence.missing:
                taking.append((sequence, 1))
            elif rows := min(sequence.missing, budget, PREFILL_ROWS - sequence.fed % PREFILL_ROWS):
                taking.append((sequence, rows))
                budget -= rows
        return taking


def _told(sequence: _Sequence, drawn: Draw | GenerationError) -> TokenEvent:
    """Return the event of a draw; raise the error that it is, with the number of the prompt."""
    if isinstance(drawn, GenerationError):
        raise GenerationError(f"prompt {sequence.number}: {drawn}", hint=drawn.hint) from drawn
    return sequence.transcript.take(drawn)


def _draw(ready: Sequence[tuple[_Sequence, F32Array]]) -> list[Draw | GenerationError]:
    """Draw from the logits of each sequence: all that sample in one call."""
    drawn: dict[int, Draw | GenerationError] = {}
    sampled = [(sequence, logits) for sequence, logits in ready if not sequence.transcript.params.plain_greedy]
    if sampled:
        samplers = [sequence.transcript.sampler for sequence, _ in sampled]
        found = draw_together(samplers, [logits for _, logits in sampled])
        drawn = {sequence.number: one for (sequence, _), one in zip(sampled, found, strict=True)}
    return [drawn[sequence.number] if sequence.number in drawn else _greedy(logits) for sequence, logits in ready]


def _greedy(logits: F32Array) -> Draw | GenerationError:
    try:
        return Draw(token=most_likely(logits))
    except GenerationError as error:
        return error
