"""Stream: the tokens of one generation, one event after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from volumetric._typing import F32Array
from volumetric.generate.events import FinishReason, Generation, GenerationStats, TokenEvent
from volumetric.generate.memory import peak_resident_bytes
from volumetric.generate.params import SamplingParams
from volumetric.generate.sampler import Draw, Sampler
from volumetric.generate.stops import StopMatcher
from volumetric.runtime.logits import most_likely

if TYPE_CHECKING:
    from volumetric.generate.session import Session


class Decoder(Protocol):
    """Turns token ids into text as they come; holds back characters that are not complete."""

    def push(self, token_id: int) -> str: ...
    def flush(self) -> str: ...


class Stream:
    """Iterator over the `TokenEvent`s of one generation; `Session.stream` and `Model.stream` make it.

    The work happens inside of ``next``. Leaving early (`close`, or an exception such as KeyboardInterrupt) ends the
    generation as cancelled; `generation` has then what was made so far.
    """

    def __init__(
        self,
        session: Session,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        limit: int,
        end_ids: frozenset[int],
        decoder: Decoder | None,
        device_bytes: int,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.params = params
        self.prompt = tuple(prompt)
        self._session = session
        self._limit = limit
        self._end_ids = end_ids
        self._decoder = decoder
        self._device_bytes = device_bytes
        self._on_end = on_end
        self._sampler = Sampler(params, prompt)
        self._stops = StopMatcher(params.stop)
        self._draws: list[Draw] = []
        self._text = ""
        self._cached = 0
        self._prompt_seconds = self._first_seconds = self._seconds = 0.0
        self._reason: FinishReason | None = None
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
    def has_text(self) -> bool:
        """Whether there is a tokenizer that turns the tokens into text."""
        return self._decoder is not None

    @property
    def begun(self) -> bool:
        """Whether the first token was drawn."""
        return bool(self._draws)

    @property
    def ended(self) -> bool:
        """Whether no more events will come."""
        return self._reason is not None

    @property
    def last_token(self) -> int:
        """The token drawn last; raises IndexError before the first one."""
        return self._draws[-1].token

    def add_seconds(self, seconds: float) -> None:
        """Count time that was spent for the next token outside of ``next``."""
        self._seconds += seconds

    def run(self) -> Generation:
        """Generate to the end and return the whole."""
        for _ in self:
            pass
        return self.generation

    @property
    def generation(self) -> Generation:
        """The generation so far; its finish reason is ``cancelled`` while it could go on."""
        wanted = self.params.logprobs is not None
        return Generation(
            text=self._text,
            token_ids=tuple(draw.token for draw in self._draws),
            finish_reason=self._reason or "cancelled",
            stats=self.stats,
            seed=None if self.params.temperature == 0.0 else self._sampler.seed,
            logprobs=tuple(draw.logprob or 0.0 for draw in self._draws) if wanted else None,
            top_logprobs=tuple(draw.top_logprobs or () for draw in self._draws) if wanted else None,
        )

    @property
    def stats(self) -> GenerationStats:
        """Counts and times so far."""
        return GenerationStats(
            prompt_tokens=len(self.prompt),
            cached_tokens=self._cached,
            generated_tokens=len(self._draws),
            prompt_seconds=self._prompt_seconds,
            first_token_seconds=self._first_seconds,
            generation_seconds=self._seconds,
            peak_bytes=peak_resident_bytes(),
            device_bytes=self._device_bytes,
            finish_reason=self._reason or "cancelled",
        )

    def _run(self) -> Generator[TokenEvent, None, None]:
        try:
            start = time.perf_counter()
            logits, self._cached = self._session.prefill(self.prompt)
            self._prompt_seconds = time.perf_counter() - start
            with closing(self._tokens(logits)) as tokens:
                while self._reason is None and not self._cancelled:
                    resumed = time.perf_counter()
                    draw = next(tokens)
                    self._count_time(time.perf_counter() - resumed)
                    yield self._take(draw)
        finally:
            self._end()

    def _tokens(self, logits: F32Array) -> Generator[Draw, None, None]:
        """Yield draws without end, from the logits after the prompt on."""
        if self.params.plain_greedy:
            token = most_likely(logits)
            yield Draw(token=token)
            with closing(self._session.greedy(token)) as following:
                for token in following:
                    yield Draw(token=token)
            return
        draw = self._sampler.draw(logits)
        yield draw
        while True:
            draw = self._sampler.draw(self._session.step(draw.token))
            yield draw

    def _count_time(self, seconds: float) -> None:
        """Count the time spent here only: how long the consumer takes between tokens says nothing about us."""
        if self._draws:
            self._seconds += seconds
        else:
            self._first_seconds = self._prompt_seconds + seconds

    def _take(self, draw: Draw) -> TokenEvent:
        self._draws.append(draw)
        ended = draw.token in self._end_ids
        piece = "" if ended or self._decoder is None else self._decoder.push(draw.token)
        shown, stopped = self._stops.push(piece)
        if ended or stopped:
            self._reason = "stop"
        elif len(self._draws) >= self._limit:
            self._reason = "length"
        if self._reason is not None and not stopped:
            shown += self._flush()
        self._text += shown
        return TokenEvent(
            index=len(self._draws) - 1,
            token_id=draw.token,
            text=shown,
            logprob=draw.logprob,
            top_logprobs=draw.top_logprobs,
            finish_reason=self._reason,
            stats=self.stats if self._reason else None,
        )

    def _flush(self) -> str:
        """Return all text held back; a stop text that completes in it still ends the text."""
        shown, stopped = self._stops.push("" if self._decoder is None else self._decoder.flush())
        if stopped:
            self._reason = "stop"
            return shown
        return shown + self._stops.flush()

    def _end(self) -> None:
        """Settle the reason and what is held back, once, however the generation ended."""
        if self._reason is None:
            self._text += self._flush()
            self._reason = "cancelled"
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
