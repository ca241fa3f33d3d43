"""Stream: the tokens of one generation, one event after the other, by a loop of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from volumetric.base.errors import GenerationError, VolumetricError
from volumetric.generate.events import Generation, GenerationStats, TokenEvent
from volumetric.generate.params import SamplingParams
from volumetric.generate.scheduling.guesses import propose
from volumetric.generate.scheduling.limits import PREFILL_ROWS, Limits
from volumetric.generate.scheduling.live import Live, Room, texts_of

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.held import Held
    from volumetric.generate.scheduling.job import Job
    from volumetric.generate.scheduling.rounds import Rounds, Told

_LIMITS = Limits.of_one_caller(seats=1, prompt_rows=PREFILL_ROWS, prefix_bytes=None)


class Stream:
    """Iterator over the `TokenEvent`s of one generation; `Session.stream` and `Model.stream` make it.

    The work happens inside of ``next``, without a queue, slots or shares: the prompt in pieces, then token after token.
    Pieces end where those of a scheduler do, and calls of the device are made by the same `Rounds`, so the tokens are
    those that the text has among others. Leaving early (`close`, or an exception such as KeyboardInterrupt) ends the
    generation as cancelled; `generation` has then what was told so far. With a draft several tokens may be made at
    once, of which those that were not told yet are forgotten.

    Parameters
    ----------
    job : of one text
    rounds : calls the device
    held : has the state that the text is computed on, and takes it back
    on_end : called once when the stream has ended, in whatever way

    Raises
    ------
    GenerationError : the prompt is empty, does not fit, or has an id outside of the vocabulary
    """

    def __init__(
        self,
        model: CompiledModel,
        job: Job,
        rounds: Rounds,
        session_state: Held,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._live: Live = texts_of(job, model, _LIMITS, Room(model.executable.memory, None), time.monotonic())
        self._rounds, self._held = rounds, session_state
        self._transcript = self._live.transcript
        self._cancelled = self._lent = False
        self._on_end = on_end
        self._told = 0
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
        live, transcript = self._live, self._transcript
        try:
            self._held.lend(live, self._rounds.stop)
            self._lent = True
            transcript.cached = live.fed
            call = self._prompt
            while transcript.reason is None and not self._cancelled:
                for _, event in self._calling(call):
                    if isinstance(event, GenerationError):
                        raise event
                    self._told += 1
                    yield event
                    if self._cancelled:
                        return
                    call = self._guessed if live.ticket.job.drafter is not None else self._next
        finally:
            self._end()

    @staticmethod
    def _calling(call: Callable[[], Told]) -> Told:
        try:
            return call()
        except VolumetricError:
            raise
        except Exception as error:
            raise GenerationError(f"{type(error).__name__}: {error}") from error

    def _prompt(self) -> Told:
        """Compute the next piece of the prompt; behind the last one comes the first token."""
        live = self._live
        outcomes = self._rounds.run([(live, live.until_cut())])
        self._held.mark(live)
        return outcomes

    def _next(self) -> Told:
        return self._rounds.go_on(self._live)

    def _guessed(self) -> Told:
        """Let the draft propose tokens, whenever it can: whoever asks for it alone wants them, and check them."""
        propose(self._live, self._live.ticket.job.drafter)
        return self._rounds.run([(self._live, 1)])

    def _end(self) -> None:
        """Give the state back, which holds what was told, settle the transcript, and tell who waits for it, once."""
        if sys.is_finalizing():
            return  # Python exits in the middle of a stream: nothing is given back to what is gone
        self._transcript.forget(self._told)
        if self._lent:
            self._lent = False
            self._rounds.stop()
            self._live.rest()
            self._held.take_back()
        self._transcript.end()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
