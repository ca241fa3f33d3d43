"""Tokens of texts that decode together, taken in one pass: a step has one object for all of them, not two for each.

Nearly every token of a server comes from a device's own loop, adds a text that is known from its id alone, and ends
nothing. `LoopedTexts` takes such tokens with a few operations on lists, and passes on the others one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volumetric.base.errors import GenerationError
from volumetric.generate.scheduling.jobs import JobEvent
from volumetric.generate.token_events import TokenEvent

if TYPE_CHECKING:
    from volumetric.generate.scheduling.generation_sequence import GenerationSequence


@dataclass(slots=True, eq=False)
class TokenBatch:
    """The next token of each of several texts, none of them its last, without log-probabilities.

    Attributes
    ----------
    sequences : the texts; the same tuple as long as the same ones decode together
    tokens : id of each one's token
    texts : the text that became certain with each token, "" if a character is incomplete
    adapters : number of the texts of each adapter
    starts : number of tokens of each text before those of `sequences` together
    step : number of this batch among theirs, from 0
    """

    sequences: tuple[GenerationSequence, ...]
    tokens: Sequence[int]
    texts: Sequence[str]
    adapters: Counter[str]
    starts: Sequence[int]
    step: int

    def event(self, number: int) -> TokenEvent:
        """Return the event of the token of one text."""
        index = self.starts[number] + self.step
        return TokenEvent(index=index, token_id=self.tokens[number], text=self.texts[number])

    def job_events(self) -> Iterator[JobEvent]:
        """Yield the event of each token."""
        for number, sequence in enumerate(self.sequences):
            yield JobEvent(ticket=sequence.ticket, choice=sequence.choice, token=self.event(number))


@dataclass(slots=True, eq=False)
class StepOutcomes:
    """What a device call brought: each text's tokens, or its error, and the tokens that need no more than a batch."""

    single: list[tuple[GenerationSequence, TokenEvent | GenerationError]] = field(default_factory=list)
    batch: TokenBatch | None = None

    def each(self) -> Iterator[tuple[GenerationSequence, TokenEvent | GenerationError]]:
        """Yield all outcomes one by one."""
        yield from self.single
        if self.batch is not None:
            for number, sequence in enumerate(self.batch.sequences):
                yield sequence, self.batch.event(number)


@dataclass(slots=True, eq=False)
class StepEvents:
    """Events of a step of the scheduler, without those of the tokens in `batch`; and the sequences of the call."""

    events: list[JobEvent] = field(default_factory=list)
    batch: TokenBatch | None = None
    sequences: Sequence[GenerationSequence] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.events) or self.batch is not None

    def job_events(self) -> list[JobEvent]:
        """Return all events one by one, in the order of the sequences."""
        if self.batch is None:
            return self.events
        order = {(id(one.ticket), one.choice): place for place, one in enumerate(self.sequences)}
        events = [*self.events, *self.batch.job_events()]
        return sorted(events, key=lambda event: order.get((id(event.ticket), event.choice), -1))


class LoopedTexts:
    """Texts that decode together in a device's loop, and take their tokens together.

    Parameters
    ----------
    sequences : the texts, each with a token at least
    """

    def __init__(self, sequences: tuple[GenerationSequence, ...]) -> None:
        self.sequences = sequences
        transcripts = [sequence.transcript for sequence in sequences]
        self._rows = [(sequence, sequence.ids.append, sequence.transcript) for sequence in sequences]
        self._adapters = Counter(sequence.ticket.job.adapter for sequence in sequences)
        self._starts = [one.drawn for one in transcripts]
        self._step = -1
        self._left = min(one.tokens_left for one in transcripts)
        self._ends = frozenset[int]().union(*(one.end_ids for one in transcripts))
        tables = [one.texts_by_id for one in transcripts]
        self._table = next((table for table in tables if table is not None), {})
        # Texts with stop texts, or whose tokenizer decodes a token by those before, take each token by themselves.
        self._alone = frozenset(i for i, table in enumerate(tables) if table is not self._table)
        self._odd = {i for i, one in enumerate(transcripts) if i in self._alone or not one.whole}

    def take(self, tokens: Sequence[int], seconds: float) -> StepOutcomes:
        """Append a token to each text, which came after so many seconds."""
        texts: list[str | None] = list(map(self._table.get, tokens))
        odd = self._odd
        self._left -= 1
        self._step += 1
        if self._left <= 0 or None in texts or not self._ends.isdisjoint(tokens):
            odd = odd | {
                i
                for i, (token, text) in enumerate(zip(tokens, texts, strict=True))
                if text is None or token in self._ends or self.sequences[i].transcript.tokens_left <= 1
            }
        for number, ((sequence, append, transcript), token) in enumerate(zip(self._rows, tokens, strict=True)):
            sequence.fed += 1
            append(token)
            if number not in odd:
                transcript.take_text(token, texts[number], seconds)
        single = [*self._singly(odd, tokens, texts, seconds)] if odd else []
        return StepOutcomes(single, self._batch(tokens, texts, single))

    def _singly(
        self, odd: set[int], tokens: Sequence[int], texts: list[str | None], seconds: float
    ) -> Iterator[tuple[GenerationSequence, TokenEvent | GenerationError]]:
        """Take the tokens of some texts one by one; fill in the texts, and yield the events that say more than that."""
        for number in sorted(odd):
            sequence = self.sequences[number]
            transcript = sequence.transcript
            if number not in self._odd:
                transcript.align_decoder()
            transcript.count_time(seconds)
            event = transcript.take_token(tokens[number])
            texts[number] = event.text
            if event.finish_reason is not None:
                texts[number] = None
                yield sequence, event
            elif number not in self._alone:
                (self._odd.discard if transcript.whole else self._odd.add)(number)

    def _batch(
        self,
        tokens: Sequence[int],
        texts: list[str | None],
        ended: Sequence[tuple[GenerationSequence, object]],
    ) -> TokenBatch | None:
        if not ended:
            known: list[str] = texts  # pyright: ignore[reportAssignmentType]
            return TokenBatch(self.sequences, tokens, known, self._adapters, self._starts, self._step)
        rows = zip(self.sequences, tokens, texts, self._starts, strict=True)
        rest = [(sequence, token, text, start) for sequence, token, text, start in rows if text is not None]
        if not rest:
            return None
        sequences, ids, shown, starts = zip(*rest, strict=True)
        adapters = Counter(sequence.ticket.job.adapter for sequence in sequences)
        return TokenBatch(sequences, ids, shown, adapters, starts, self._step)

    def close(self) -> None:
        """Let each text go on by itself."""
        for number, sequence in enumerate(self.sequences):
            if number not in self._odd:
                sequence.transcript.align_decoder()
