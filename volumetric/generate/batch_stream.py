"""Several prompts at once: a scheduler whose jobs are all known from the start."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.params import SamplingParams
from volumetric.generate.prompt import items_of
from volumetric.generate.scheduler import Scheduler
from volumetric.generate.scheduling.jobs import Job, JobEvent
from volumetric.generate.scheduling.limits import PROMPT_ROWS, TOGETHER, Limits
from volumetric.generate.token_events import Generation, TokenEvent

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.prompt import Prompt


class BatchStream:
    """Iterator over ``(number of the prompt, TokenEvent)``, see `Model.stream_batch`.

    Events of a prompt arrive in order; those of several prompts are interleaved. The work happens in ``next``.
    """

    def __init__(
        self,
        model: CompiledModel,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        *,
        together: int = TOGETHER,
        prompt_rows: int = PROMPT_ROWS,
        template_args: Mapping[str, Any] | None = None,
        parse_special: bool | None = None,
        **explicit: Any,
    ) -> None:
        for name, value in {"together": together, "prompt_rows": prompt_rows}.items():
            if not isinstance(value, Integral) or value < 1:
                raise SpecError(f"{name} must be a whole number of 1 or more, got {value!r}")
        every = items_of(prompts, "generate_batch requires a list of prompts")
        each = [params] * len(every) if params is None or not isinstance(params, Sequence) else list(params)
        if len(each) != len(every):
            raise SpecError(f"{len(every)} prompts need one set of parameters or {len(every)}, got {len(each)}")
        ids = [model.encode(prompt, template_args=template_args, parse_special=parse_special) for prompt in every]
        jobs = [Job(prompt=i, params=model.sampling(one, **explicit)) for i, one in zip(ids, each, strict=True)]
        for job in jobs:
            model.room_after(len(job.prompt))
        # All prompts are checked before the first one is computed.
        limits = Limits.of_one_caller(slots=together, prompt_rows=prompt_rows, prefix_bytes=0)
        self._scheduler = Scheduler(model, limits)
        self._tickets = [self._scheduler.submit(job) for job in jobs]
        self._number = {id(ticket): number for number, ticket in enumerate(self._tickets)}
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
        """The generations so far of prompts that have begun; incomplete ones are ``cancelled``."""
        return [generation for ticket in self._tickets if ticket.started for generation in ticket.generations]

    def close(self) -> None:
        """End all generations now."""
        self._events.close()
        self._scheduler.close()

    def _run(self) -> Generator[tuple[int, TokenEvent], None, None]:
        try:
            while not self._scheduler.idle:
                for event in self._scheduler.step():
                    yield self._as_item(event)
        finally:
            self._scheduler.close()

    def _as_item(self, event: JobEvent) -> tuple[int, TokenEvent]:
        """Return an event's prompt number and token; raise its error, with the number."""
        number = self._number[id(event.ticket)]
        if isinstance(event.error, GenerationError):
            raise GenerationError(f"prompt {number}: {event.error}", hint=event.error.hint) from event.error
        if event.error is not None:
            raise event.error
        assert event.token is not None  # only this stream cancels these jobs
        return number, event.token
