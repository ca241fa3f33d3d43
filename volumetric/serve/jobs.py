"""Jobs: what a request asks of the scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from volumetric.errors import DoesNotFitError, GenerationError, SpecError
from volumetric.generate.scheduling.job import Job
from volumetric.serve.problem import bad, problem_of

if TYPE_CHECKING:
    from volumetric.generate.drafting import Drafter
    from volumetric.generate.grammar import Grammar
    from volumetric.serve.fields.sampled import Sampled
    from volumetric.serve.serving import Served, Settings


def jobs_of(
    asked: Sampled,
    served: Served,
    prompts: Sequence[Sequence[int]],
    settings: Settings,
    *,
    grammar: Grammar | None,
    drafter: Callable[[], Drafter] | None = None,
    shown: Iterable[int] = (),
    scored: bool = False,
    param: str,
) -> list[Job]:
    """Return the jobs of a request's prompts.

    Without ``max_tokens`` a text may be as long as the context leaves room for, and more than that is no error; where a
    context has no end, as long as the model was trained for.
    Errors of prompts name the field `param`. Where they are `scored`, log-probabilities of their tokens are told too.

    Raises
    ------
    RequestError : a parameter is out of range, or a prompt does not fit into the context
    """
    model = served.model
    texts, vocabulary = asked.texts, model.info.vocab_size
    for name, bias in {"logit_bias": asked.logit_bias, "allowed_token_ids": asked.allowed_token_ids}.items():
        if len(bias or ()) > vocabulary:
            raise bad(f"{name} has {len(bias or ())} tokens, the model {vocabulary}", param=name, code="invalid_value")
    explicit = asked.explicit(asked.tops)
    explicit.setdefault("max_tokens", model.info.window)
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
            told = f"{name} names token {max(ids)}, but the model has {vocabulary} tokens"
            raise bad(told, param=name, code="invalid_value")
    if grammar is not None and (params.allowed_ids or params.min_tokens):
        name = "allowed_token_ids" if params.allowed_ids else "min_tokens"
        raise bad(f"{name} and a form exclude each other: it says which tokens may come", param=name)
    deadline = time.monotonic() + settings.request_seconds
    return [
        Job(
            prompt=ids,
            params=params,
            n=texts,
            priority=asked.priority or 0,
            deadline=deadline,
            salt=asked.cache_salt or "",
            adapter=served.adapter,
            constraint=None if grammar is None else grammar.begin,
            drafter=drafter,
            shown=frozenset(shown),
            targets=[*ids[1:], ids[-1]] if scored else None,  # what follows the last one is not known yet
            tops=(asked.tops or 0) if scored else 0,
        )
        for ids in prompts
    ]


def check_room(served: Served, tokens: int) -> None:
    """Raise `DoesNotFitError` for a prompt of more tokens than the context holds."""
    try:
        served.model.room_after(tokens)
    except GenerationError as error:
        raise DoesNotFitError(str(error), hint=error.hint) from None
