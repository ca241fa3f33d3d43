"""Tokens of texts that decode together, taken in one pass: a step has one object for all of them, not two for each.

Nearly every token of a server comes from a device's own loop, adds a text that is known from its id alone, and ends
nothing. `LoopedTexts` takes such tokens with a few operations on lists, and passes on the others one by one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import GenerationError
from volumetric.generate.scheduling.generation_sequence import BLOCK
from volumetric.generate.scheduling.jobs import JobEvent
from volumetric.generate.token_events import TokenEvent

if TYPE_CHECKING:
    from volumetric.generate.scheduling.generation_sequence import GenerationSequence, StateBudget

_MOST_KEPT: Final = 256
"""Steps after which tokens are written into the sequences at the latest."""


@dataclass(slots=True, eq=False)
class TokenBatch:
    """The next token of each of several texts, none of them its last, without log-probabilities.

    Attributes
    ----------
    source : the texts that decode together
    sequences : those of the batch; the same tuple as long as the same ones decode together
    tokens : id of each one's token
    texts : the text that became certain with each token, "" if a character is incomplete
    adapters : number of the texts of each adapter
    starts : number of tokens of each text before the first batch of `source`
    step : number of this batch among those of `source`, from 0
    """

    source: LoopedTexts
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

    Tokens are passed on at once, and written into the sequences and transcripts later, many at a time: `sync` does so.
    A step otherwise reads and writes a dozen objects of each text, which other work has driven out of the caches.

    Parameters
    ----------
    sequences : the texts, each with a token at least
    """

    def __init__(self, sequences: tuple[GenerationSequence, ...]) -> None:
        self.sequences = sequences
        transcripts = [sequence.transcript for sequence in sequences]
        self._lock = threading.RLock()  # another thread may read a transcript
        self._adapters = Counter(sequence.ticket.job.adapter for sequence in sequences)
        self._starts = [one.token_count for one in transcripts]
        self._left = [one.tokens_left for one in transcripts]
        self._shortest = min(self._left)
        self._ends = frozenset[int]().union(*(one.end_ids for one in transcripts))
        tables = [one.texts_by_id for one in transcripts]
        self._table = next((table for table in tables if table is not None), {})
        # Texts with stop texts, or whose tokenizer decodes a token by those before, take each token by themselves.
        self._alone = frozenset(i for i, table in enumerate(tables) if table is not self._table)
        self._odd = {i for i, one in enumerate(transcripts) if i in self._alone or not one.whole}
        # The owner of a session may read its tokens at any time, and so may the reader of a single stream.
        self._live = [i for i, one in enumerate(sequences) if one.ticket.job.session_state is not None]
        self._live = [0] if len(sequences) == 1 else self._live
        self._last: float | None = None  # time of the last step
        self._step = 0
        self._kept = 0  # the step of the first row of the lists below
        self._tokens: list[Sequence[int]] = []
        self._texts: list[list[str | None]] = []
        self._seconds: list[float] = []
        self._written = [0] * len(sequences)  # steps of each that are written
        for one in transcripts:
            one.before_read = self.sync

    def take(self, tokens: Sequence[int], seconds: float) -> StepOutcomes:
        """Append a token to each text, which came after so many seconds."""
        texts: list[str | None] = list(map(self._table.get, tokens))
        odd, step = self._odd, self._step
        if self._shortest <= step + 1 or None in texts or not self._ends.isdisjoint(tokens):
            odd = odd | {
                i
                for i, (token, text, left) in enumerate(zip(tokens, texts, self._left, strict=True))
                if text is None or token in self._ends or left <= step + 1
            }
        with self._lock:
            single = [*self._singly(odd, tokens, texts, seconds)] if odd else []
            self._tokens.append(tokens)
            self._texts.append(texts)
            self._seconds.append(seconds)
            self._step += 1
            for number in self._live:
                self._write(number)
            if len(self._tokens) >= _MOST_KEPT:
                self.sync()
        return StepOutcomes(single, self._batch(tokens, texts, single, step))

    def _singly(
        self, odd: set[int], tokens: Sequence[int], texts: list[str | None], seconds: float
    ) -> Iterator[tuple[GenerationSequence, TokenEvent | GenerationError]]:
        """Take the tokens of some texts one by one; fill in the texts, and yield the events that say more than that."""
        for number in sorted(odd):
            self._write(number)
            self._written[number] += 1
            sequence = self.sequences[number]
            transcript, token = sequence.transcript, tokens[number]
            if number not in self._odd:
                transcript.align_decoder()
            sequence.fed += 1
            sequence.ids.append(token)
            transcript.count_time(seconds)
            event = transcript.take_token(token)
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
        step: int,
    ) -> TokenBatch | None:
        if not ended:
            shown: Sequence[str] = texts  # pyright: ignore[reportAssignmentType]
            return TokenBatch(self, self.sequences, tokens, shown, self._adapters, self._starts, step)
        rows = zip(self.sequences, tokens, texts, self._starts, strict=True)
        rest = [(sequence, token, text, start) for sequence, token, text, start in rows if text is not None]
        if not rest:
            return None
        sequences, ids, shown, starts = zip(*rest, strict=True)
        adapters = Counter(sequence.ticket.job.adapter for sequence in sequences)
        return TokenBatch(self, sequences, ids, shown, adapters, starts, step)

    def times_since(self, sequences: Sequence[GenerationSequence], now: float) -> Mapping[float, int]:
        """Return the seconds since the last tokens of some of the texts, with numbers of texts; `now` is the next."""
        last, self._last = self._last, now
        if last is not None:
            return {now - last: len(sequences)}
        return Counter(now - sequence.last for sequence in sequences)

    def sync(self) -> None:
        """Write all tokens so far into the sequences and transcripts."""
        with self._lock:
            for number in range(len(self.sequences)):
                self._write(number)
            self._kept = self._step
            for rows in (self._tokens, self._texts, self._seconds):
                rows.clear()

    def _write(self, number: int) -> None:
        """Write the tokens of a text."""
        sequence, first = self.sequences[number], self._written[number] - self._kept
        if self._last is not None:
            sequence.last = self._last
        if first == len(self._tokens):
            return
        tokens = [row[number] for row in self._tokens[first:]]
        sequence.fed += len(tokens)
        sequence.ids += tokens
        # None of these texts is None: its token would have been taken by itself.
        texts: list[Any] = [row[number] for row in self._texts[first:]]
        sequence.transcript.take_texts(tokens, texts, sum(self._seconds[first:]))
        self._written[number] += len(tokens)

    def close(self) -> None:
        """Let each text go on by itself."""
        self.sync()
        for number, sequence in enumerate(self.sequences):
            sequence.transcript.before_read = None
            if number not in self._odd:
                sequence.transcript.align_decoder()


class GrowingStates:
    """States of sequences that decode together: each call adds a row to each, and few need a new block.

    Parameters
    ----------
    sequences : their sequences, in the device's loop and thus without followers
    room : memory of states

    Attributes
    ----------
    rows : rows of all sequences in the next call, one of each
    nbytes : memory that they need, with the rows of the call for which `grow` was called last
    """

    def __init__(self, sequences: Sequence[GenerationSequence], room: StateBudget) -> None:
        self.sequences = sequences
        self.rows: list[tuple[GenerationSequence, int]] = [(sequence, 1) for sequence in sequences]
        self.nbytes: int = sum(room.bytes_of(sequence.fed) for sequence in sequences)
        self._block = room.bytes_of(2 * BLOCK) - room.bytes_of(BLOCK)
        self._calls = 0
        self._opening = [0] * BLOCK
        for sequence in sequences:
            self._opening[-sequence.fed % BLOCK] += 1  # after so many calls, and every `BLOCK` calls from then on

    def grow(self) -> int:
        """Count the rows of a call, and return `nbytes`."""
        self.nbytes += self._opening[self._calls % BLOCK] * self._block
        self._calls += 1
        return self.nbytes
