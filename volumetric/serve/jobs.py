"""Jobs: what a request asks of the scheduler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from volumetric.errors import DoesNotFitError, GenerationError, SpecError
from volumetric.generate.scheduling.job import Job
from volumetric.serve.problem import problem_of

if TYPE_CHECKING:
    from volumetric.generate.grammar import Grammar
    from volumetric.serve.fields.sampled import Sampled
    from volumetric.serve.serving import Served, Settings


def job_of(
    asked: Sampled,
    served: Served,
    ids: Sequence[int],
    tops: int | None,
    settings: Settings,
    *,
    grammar: Grammar | None = None,
) -> Job:
    """Return the job of one prompt.

    Without ``max_tokens`` a text may be as long as the context leaves room for, and more than that is no error.

    Raises
    ------
    RequestError : a parameter is out of range, or the prompt does not fit into the context
    """
    model = served.model
    texts, explicit = asked.texts, asked.explicit(tops)
    explicit.setdefault("max_tokens", model.info.context)
    try:
        model.room_after(len(ids))
    except GenerationError as error:
        raise problem_of(DoesNotFitError(str(error), hint=error.hint), param="messages") from None
    try:
        params = model.sampling(**explicit)
    except SpecError as error:
        raise problem_of(error) from None
    return Job(
        prompt=ids,
        params=params,
        n=texts,
        priority=asked.priority or 0,
        deadline=time.monotonic() + settings.request_seconds,
        salt=asked.cache_salt or "",
        constraint=None if grammar is None else grammar.begin,
    )
