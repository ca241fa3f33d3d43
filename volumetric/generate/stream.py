"""Stream: the tokens of one generation, one event after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from volumetric.generate.events import Generation, GenerationStats, TokenEvent
from volumetric.generate.params import SamplingParams

if TYPE_CHECKING:
    from volumetric.generate.scheduler import Scheduler
    from volumetric.generate.scheduling.job import Ticket


class Stream:
    """Iterator over the `TokenEvent`s of one generation; `Session.stream` and `Model.stream` make it.

    The work happens inside of ``next``. Leaving early (`close`, or an exception such as KeyboardInterrupt) ends the
    generation as cancelled; `generation` has then what was told so far. With a draft several tokens may be made at
    once, of which those that were not told yet are forgotten.
    """

    def __init__(self, scheduler: Scheduler, ticket: Ticket, on_end: Callable[[], None] | None = None) -> None:
        self._scheduler = scheduler
        self._ticket = ticket
        self._transcript = ticket.transcripts[0]
        self._on_end = on_end
        self._told = 0
        self._events = self._run()

    def __iter__(self) -> Iterator[TokenEvent]:
        return self

    def __next__(self) -> TokenEvent:
        return next(self._events)

    def cancel(self) -> None:
        """Ask the stream to end before its next token; may be called from another thread."""
        self._scheduler.cancel(self._ticket)

    def close(self) -> None:
        """End the stream now, from the thread that iterates over it."""
        self._events.close()
        self._end()

    @property
    def params(self) -> SamplingParams:
        """The sampling parameters in force."""
        return self._transcript.params

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the prompt."""
        return self._transcript.prompt

    @property
    def has_text(self) -> bool:
        """Whether there is a tokenizer that turns the tokens into text."""
        return self._transcript.decoder is not None

    @property
    def begun(self) -> bool:
        """Whether the first token was drawn."""
        return self._transcript.begun

    @property
    def ended(self) -> bool:
        """Whether no more events will come."""
        return self._transcript.reason is not None

    def run(self) -> Generation:
        """Generate to the end and return the whole."""
        for _ in self:
            pass
        return self.generation

    @property
    def generation(self) -> Generation:
        """The generation so far; its finish reason is ``cancelled`` while it could go on."""
        return self._transcript.generation

    @property
    def stats(self) -> GenerationStats:
        """Counts and times so far."""
        return self._transcript.stats

    def _run(self) -> Generator[TokenEvent, None, None]:
        ticket = self._ticket
        try:
            while not ticket.ended:
                for event in self._scheduler.step():
                    if event.error is not None:
                        raise event.error
                    if ticket.cancelled:
                        return
                    if event.token is not None:
                        self._told += 1
                        yield event.token
        finally:
            self._end()

    def _end(self) -> None:
        """Give the state back, settle the transcript, and tell whoever waits for the end, once."""
        self._transcript.forget(self._told)
        if not self._ticket.ended:
            self._scheduler.cancel(self._ticket)
            self._scheduler.step()
        self._transcript.end()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
