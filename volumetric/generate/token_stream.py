"""Stream: the tokens of a single generation, without a scheduler."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from volumetric.base.errors import GenerationError, VolumetricError
from volumetric.base.notebook_cell import handle_interrupts, stop_button
from volumetric.generate.params import SamplingParams
from volumetric.generate.scheduling.generation_sequence import GenerationSequence, StateBudget, texts_of
from volumetric.generate.scheduling.limits import PREFILL_ROWS, Limits
from volumetric.generate.scheduling.speculation import propose
from volumetric.generate.token_events import Generation, GenerationStats, TokenEvent

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.scheduling.device_calls import DeviceCalls, StepOutcomes
    from volumetric.generate.scheduling.jobs import Job
    from volumetric.generate.session_state import SessionState

_LIMITS = Limits.of_one_caller(slots=1, prompt_rows=PREFILL_ROWS, prefix_bytes=None)


class Stream:
    """Iterator over the `TokenEvent`s of one generation, see `Session.stream` and `Model.stream`.

    The work happens in ``next``, without a queue, slots or shares: the prompt in chunks, then token after token. Chunks
    are split as in a scheduler, and the same `DeviceCalls` calls the device, so that the tokens are those of a batch.
    Leaving early (`close`, or an exception such as KeyboardInterrupt) ends the generation as cancelled; `generation`
    then has the tokens returned so far. With a draft several tokens may be computed at once; those not yet returned are
    dropped. A stream that is the last value of a notebook's cell generates there, and shows each token as it comes.

    Parameters
    ----------
    job : the job, with one text
    rounds : calls the device
    session_state : owns the state that the text is computed on, and takes it back
    on_end : called once when the stream has ended, by success, error or cancellation

    Raises
    ------
    GenerationError : the prompt is empty, does not fit, or has an id outside of the vocabulary
    """

    def __init__(
        self,
        model: CompiledModel,
        job: Job,
        rounds: DeviceCalls,
        session_state: SessionState,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._live: GenerationSequence = texts_of(
            job, model, _LIMITS, StateBudget(model.executable.memory, None), time.monotonic()
        )
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
        """End the stream before its next token; may be called from another thread."""
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
        """Whether there is a tokenizer that decodes the tokens."""
        return self._transcript.decoder is not None

    @property
    def begun(self) -> bool:
        """Whether the first token has been drawn."""
        return self._transcript.begun

    @property
    def ended(self) -> bool:
        """Whether no more events will come."""
        return self._transcript.reason is not None

    def _ipython_display_(self) -> None:
        """Write the text into a notebook's cell as it is generated, to the end; its stop button ends the stream."""
        with handle_interrupts(lambda number, frame: self.cancel()):
            for event in self:
                sys.stdout.write(event.text if self.has_text else f"{event.token_id} ")
                sys.stdout.flush()

    def run(self) -> Generation:
        """Generate to the end and return the whole generation; the stop button of a notebook cancels the stream."""
        with stop_button(None) as stop:
            for _ in self:
                if stop():
                    self.cancel()
        return self.generation

    @property
    def generation(self) -> Generation:
        """The generation so far; its finish reason is ``cancelled`` until it has ended."""
        return self._transcript.generation

    @property
    def stats(self) -> GenerationStats:
        """Counts and times so far."""
        return self._transcript.stats

    def _run(self) -> Generator[TokenEvent, None, None]:
        sequence, transcript = self._live, self._transcript
        try:
            self._held.lend_to(sequence, self._rounds.stop)
            self._lent = True
            transcript.cached = sequence.fed
            call = self._prompt
            while transcript.reason is None and not self._cancelled:
                for _, event in self._calling(call).each():
                    if isinstance(event, GenerationError):
                        raise event
                    self._told += 1
                    yield event
                    if self._cancelled:
                        return
                    call = self._next_with_guesses if sequence.ticket.job.drafter is not None else self._next
        finally:
            self._end()

    @staticmethod
    def _calling(call: Callable[[], StepOutcomes]) -> StepOutcomes:
        try:
            return call()
        except VolumetricError:
            raise
        except Exception as error:
            raise GenerationError(f"{type(error).__name__}: {error}") from error

    def _prompt(self) -> StepOutcomes:
        """Compute the next chunk of the prompt; the last one also draws the first token."""
        sequence = self._live
        outcomes = self._rounds.run([(sequence, sequence.until_cut())])
        self._held.mark(sequence)
        return outcomes

    def _next(self) -> StepOutcomes:
        return self._rounds.next_token(self._live)

    def _next_with_guesses(self) -> StepOutcomes:
        """Let the draft propose tokens whenever it can, since it was set for this stream alone, and check them."""
        propose(self._live, self._live.ticket.job.drafter)
        return self._rounds.run([(self._live, 1)])

    def _end(self) -> None:
        """Return the state, truncated to the returned tokens, end the transcript, and call `on_end`, once."""
        if sys.is_finalizing():
            return  # at exit of Python the owner of the state may be gone
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
