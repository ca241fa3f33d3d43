"""Completing: turns a request into jobs of the scheduler, and their events into a whole or streamed answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from volumetric.base.errors import DoesNotFitError, GenerationError, SpecError
from volumetric.generate.scheduling.jobs import Job
from volumetric.generate.token_events import Generation
from volumetric.serve.event_stream import EventStream, StreamedTexts, wait_for_disconnect
from volumetric.serve.problem import RequestError, bad_request, problem_of
from volumetric.serve.serving import ServedModel, json_bytes

if TYPE_CHECKING:
    from volumetric.generate.drafters import Drafter
    from volumetric.generate.grammar import Grammar
    from volumetric.generate.scheduling.jobs import JobEvent
    from volumetric.serve.answer_fields import Answer
    from volumetric.serve.engine import Engine, SubmittedJobs
    from volumetric.serve.fields.sampling_fields import SamplingFields
    from volumetric.serve.serving import ServerSettings

_FEW = 4096
"""Tokens of prompts that are checked in less than a tenth of a millisecond."""
_CLOSED = 499
"""Status of a request whose client has disconnected, as in nginx; only the log shows it."""


def jobs_of(
    body: SamplingFields,
    served: ServedModel,
    prompts: Sequence[Sequence[int]],
    settings: ServerSettings,
    *,
    grammar: Grammar | None,
    drafter: Callable[[], Drafter] | None = None,
    shown: Iterable[int] = (),
    scored: bool = False,
    param: str,
) -> list[Job]:
    """Return the jobs of a request's prompts.

    Without ``max_tokens`` a text may fill the rest of the context; a larger ``max_tokens`` is no error. If the context
    is unbounded, the limit is the model's training length. Errors of prompts name the field `param`. With `scored`,
    the log-probabilities of the prompts' tokens are returned, too.

    Raises
    ------
    RequestError : a parameter is out of range, or a prompt does not fit into the context
    """
    model = served.model
    texts, vocabulary = body.texts, model.info.vocab_size
    for name, bias in {"logit_bias": body.logit_bias, "allowed_token_ids": body.allowed_token_ids}.items():
        if len(bias or ()) > vocabulary:
            raise bad_request(
                f"{name} has {len(bias or ())} tokens, the model has {vocabulary}", param=name, code="invalid_value"
            )
    explicit = body.explicit(body.tops)
    explicit.setdefault("max_tokens", served.window)
    try:
        for ids in prompts:
            check_room(served, len(ids))
    except DoesNotFitError as error:
        raise problem_of(error, param=param) from None
    try:
        params = served.sampling(settings, **explicit).params
    except SpecError as error:
        raise problem_of(error) from None
    for name, ids in {"logit_bias": params.logit_bias, "allowed_token_ids": params.allowed_ids}.items():
        if max(ids or (), default=0) >= vocabulary:
            message = f"{name} names token {max(ids)}, but the model has {vocabulary} tokens"
            raise bad_request(message, param=name, code="invalid_value")
    if grammar is not None and (params.allowed_ids or params.min_tokens):
        name = "allowed_token_ids" if params.allowed_ids else "min_tokens"
        raise bad_request(
            f"{name} and a constrained output format exclude each other: the format decides which tokens are allowed",
            param=name,
        )
    deadline = time.monotonic() + settings.request_seconds
    return [
        Job(
            prompt=ids,
            params=params,
            n=texts,
            priority=body.priority or 0,
            deadline=deadline,
            salt=body.cache_salt or "",
            adapter=served.adapter,
            constraint=None if grammar is None else grammar.begin,
            drafter=drafter,
            shown=frozenset(shown),
            targets=[*ids[1:], ids[-1]] if scored else None,  # the last token has no successor to score
            tops=(body.tops or 0) if scored else 0,
        )
        for ids in prompts
    ]


def quick_jobs(body: SamplingFields, tokens: int) -> bool:
    """Whether `jobs_of` takes less time than a thread would cost, for prompts of so many tokens together."""
    return tokens <= _FEW and not body.logit_bias and not body.allowed_token_ids


def check_room(served: ServedModel, tokens: int) -> None:
    """Raise `DoesNotFitError` for a prompt of more tokens than the context holds."""
    try:
        served.model.room_after(tokens)
    except GenerationError as error:
        raise DoesNotFitError(str(error), hint=error.hint) from None


async def complete(
    request: Request, served: ServedModel, jobs: Sequence[Job], shape: Answer, *, stream: bool
) -> Response:
    """Answer a request with the texts of its jobs.

    Raises
    ------
    RequestError : the model does not generate, or the engine refuses a job
    """
    engine = engine_of(served)
    try:
        owner, weight = request.scope["state"].get("owner", ("", 1.0))
        running = engine.submit(jobs, owner=owner, weight=weight)
    except Exception as error:
        raise problem_of(error) from error
    if stream:
        return EventStream(running, StreamedTexts(AnswerTexts(running), shape))
    return await _whole_response(request, running, shape)


def engine_of(served: ServedModel) -> Engine:
    """Return the engine of a model. Raises `RequestError` for a model that does not generate text."""
    if served.engine is None:
        raise RequestError(
            400, f"{served.name} computes embeddings and does not generate text", param="model", code="invalid_value"
        )
    return served.engine


class AnswerTexts:
    """Collects the texts of a request from events."""

    def __init__(self, running: SubmittedJobs) -> None:
        self._first = {}
        count = 0
        for ticket in running.tickets:
            self._first[ticket] = count
            count += ticket.job.n
        self._tickets = list(running.tickets)
        self._whole: list[Generation | None] = [None] * count
        self._left = count

    def take(self, event: JobEvent) -> int:
        """Store an event, and return the index of its text. Raises `RequestError` for an error event."""
        if event.error is not None:
            raise problem_of(event.error) from event.error
        index = self.index_of(event)
        if event.generation is not None:
            self._left -= self._whole[index] is None
            self._whole[index] = event.generation
        return index

    def index_of(self, event: JobEvent) -> int:
        """Return the index of an event's text."""
        return self._first[event.ticket] + event.choice

    @property
    def ended(self) -> bool:
        """Whether all texts have ended."""
        return not self._left

    @property
    def by_prompt(self) -> list[list[Generation]]:
        """The texts of each prompt, after all have ended."""
        whole = iter(one for one in self._whole if one is not None)
        return [[next(whole) for _ in range(ticket.job.n)] for ticket in self._tickets]


async def _whole_response(request: Request, running: SubmittedJobs, shape: Answer) -> Response:
    """Wait for all texts, or until the client disconnects."""
    running.only_ends = True
    making = asyncio.ensure_future(_all_texts(running))
    leaving = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait((making, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not making.done():
            return Response(status_code=_CLOSED)
        texts = making.result()
    finally:
        running.leave()
        for task in (making, leaving):
            task.cancel()
        await asyncio.gather(making, leaving, return_exceptions=True)
    return Response(json_bytes(shape.whole(texts.by_prompt)), media_type="application/json")


async def _all_texts(running: SubmittedJobs) -> AnswerTexts:
    texts = AnswerTexts(running)
    while not texts.ended:
        for event in await running.events():
            texts.take(event)
    return texts
