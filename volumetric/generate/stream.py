"""Stream: the tokens of one generation, one event after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from volumetric._typing import F32Array
from volumetric.generate.events import Generation, GenerationStats, TokenEvent
from volumetric.generate.params import SamplingParams
from volumetric.generate.sampler import Draw
from volumetric.generate.transcript import Transcript
from volumetric.runtime.logits import most_likely

if TYPE_CHECKING:
    from volumetric.generate.drafting import Drafter
    from volumetric.generate.session import Session


class Stream:
    """Iterator over the `TokenEvent`s of one generation; `Session.stream` and `Model.stream` make it.

    The work happens inside of ``next``. Leaving early (`close`, or an exception such as KeyboardInterrupt) ends the
    generation as cancelled; `generation` has then what was made so far.
    """

    def __init__(
        self,
        session: Session,
        transcript: Transcript,
        on_end: Callable[[], None] | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        self._session = session
        self._transcript = transcript
        self._on_end = on_end
        self._drafter = drafter
        self._cancelled = False
        self._events = self._run()

    def __iter__(self) -> Iterator[TokenEvent]:
        return self

    def __next__(self) -> TokenEvent:
        return next(self._events)

    def cancel(self) -> None:
        """Ask the stream to end before its next token; may be called from another thread."""
        self._cancelled = True

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
        made = self._transcript
        try:
            start = time.perf_counter()
            logits, made.cached = self._session.prefill(made.prompt)
            made.prompt_seconds = time.perf_counter() - start
            made.count_time(made.prompt_seconds)
            with closing(self._tokens(logits)) as tokens:
                while made.reason is None and not self._cancelled:
                    # How long the consumer takes between tokens says nothing about us.
                    resumed = time.perf_counter()
                    draw = next(tokens)
                    made.count_time(time.perf_counter() - resumed)
                    yield made.take(draw)
        finally:
            self._end()

    def _tokens(self, logits: F32Array) -> Generator[Draw, None, None]:
        """Yield draws without end, from the logits after the prompt on."""
        if self._drafter is not None:
            from volumetric.generate.speculation import drafted  # for those who draft

            yield from drafted(self._session, self._transcript, self._drafter, logits)
        if self.params.plain_greedy:
            token = most_likely(logits)
            yield Draw(token=token)
            with closing(self._session.greedy(token)) as following:
                for token in following:
                    yield Draw(token=token)
            return
        sampler = self._transcript.sampler
        while True:
            draw = sampler.draw(logits)
            yield draw
            if sampler.chooser is not None and (loop := self._session.drawn(draw.token, sampler.chooser)) is not None:
                with closing(loop):
                    for token in loop:
                        yield Draw(token=token)
            logits = self._session.step(draw.token)

    def _end(self) -> None:
        """Settle the transcript, and tell whoever waits for the end, once."""
        self._transcript.end()
        drafter, self._drafter = self._drafter, None
        if drafter is not None:
            drafter.close()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
