"""Fields of answers: the interface of all endpoints' answers, and their log-probabilities, timings and usage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from volumetric.generate.token_events import Generation, TokenEvent, TopLogprobs
from volumetric.serve.problem import RequestError

JsonObject = dict[str, Any]
"""An object that is encoded as JSON."""
DrawnToken = tuple[int, float, TopLogprobs]
"""A token, its log-probability, and the most likely alternatives with theirs."""


class Answer(Protocol):
    """Builds the response to a request, whole or as the events of a stream."""

    def whole(self, prompts: Sequence[Sequence[Generation]]) -> JsonObject:
        """Return the answer for all texts of all prompts."""
        ...

    def begun(self) -> Iterable[bytes]:
        """Return the events before the first token."""
        ...

    def opening(self, index: int) -> Sequence[JsonObject]:
        """Return the chunks before the first token of a text."""
        ...

    def chunks(self, index: int, tokens: Sequence[TokenEvent]) -> bytes:
        """Return the events of the chunks of some tokens of a text."""
        ...

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return what encloses the JSON of a text in the event of further tokens; None if more than the text varies."""
        ...

    def closing(self, index: int, reason: str) -> Sequence[JsonObject]:
        """Return the chunks after the last token of a text."""
        ...

    def framed(self, fields: JsonObject) -> bytes:
        """Return the event of a chunk."""
        ...

    def failed(self, problem: RequestError) -> bytes:
        """Return the last event of a failed stream."""
        ...

    def ended(self, prompts: Sequence[Sequence[Generation]]) -> Iterable[bytes]:
        """Return the events after all texts."""
        ...


def drawn_tokens(generation: Generation) -> list[DrawnToken]:
    """Return the tokens of a whole text; none if no log-probabilities were requested."""
    if generation.logprobs is None or generation.top_logprobs is None:
        return []
    return list(zip(generation.token_ids, generation.logprobs, generation.top_logprobs, strict=True))


def chunk_tokens(tokens: Sequence[TokenEvent]) -> list[DrawnToken]:
    """Return the tokens of a chunk."""
    return [(one.token_id, one.logprob or 0.0, one.top_logprobs or ()) for one in tokens]


def finite_logprob(logprob: float) -> float:
    """Clip to −9999, OpenAI's value for an impossible token: JSON has no infinity."""
    return max(logprob, -9999.0)


def logprob_fields(drawn: Sequence[DrawnToken], text_of: Callable[[int], str]) -> list[JsonObject]:
    """Return tokens with their log-probabilities and alternatives, in the format of chats."""

    def token(token: int, logprob: float) -> JsonObject:
        text = text_of(token)
        # A token may be part of a character; then its bytes cannot be derived from its text.
        data = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
        return {"token": text, "logprob": finite_logprob(logprob), "bytes": data}

    return [token(id, logprob) | {"top_logprobs": [token(*one) for one in tops]} for id, logprob, tops in drawn]


def usage(prompts: Sequence[Sequence[Generation]]) -> JsonObject:
    """Return the counts of prompt and completion tokens; a prompt counts once for all its texts."""
    prompt_tokens = sum(generations[0].stats.prompt_tokens for generations in prompts)
    cached = sum(generations[0].stats.cached_tokens for generations in prompts)
    stats = [one.stats for generations in prompts for one in generations]
    completion_tokens = sum(one.generated_tokens for one in stats)
    accepted = sum(one.accepted_tokens for one in stats)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(one.drafted_tokens for one in stats) - accepted,
        },
    }


def timings(generation: Generation) -> JsonObject:
    """Return the timings of a text, with llama-server's names."""
    stats = generation.stats
    return {
        "cache_n": stats.cached_tokens,
        "prompt_n": stats.prompt_tokens - stats.cached_tokens,
        "prompt_ms": round(1000 * stats.prompt_seconds, 3),
        "predicted_n": stats.generated_tokens,
        "draft_n": stats.drafted_tokens,
        "draft_n_accepted": stats.accepted_tokens,
        "predicted_ms": round(1000 * (stats.first_token_seconds + stats.generation_seconds), 3),
    }


@dataclass(slots=True)
class AnswerTimings:
    """Token counts and timings of the texts of one request, by index."""

    _began: float = field(default_factory=time.monotonic)
    _counts: dict[int, int] = field(default_factory=dict)
    _first: dict[int, float] = field(default_factory=dict)

    def count(self, index: int, tokens: Sequence[TokenEvent]) -> None:
        """Count tokens of a text."""
        self._counts[index] = self._counts.get(index, 0) + len(tokens)
        self._first.setdefault(index, time.monotonic())

    def usage(self, index: int, size: int) -> JsonObject:
        """Return the usage of a text so far, as vLLM does with each chunk; `size` is the prompt's number of tokens."""
        tokens = self._counts.get(index, 0)
        return {"prompt_tokens": size, "completion_tokens": tokens, "total_tokens": size + tokens}

    def timings(self, index: int, size: int) -> JsonObject:
        """Return the timings of a text so far, with llama-server's names; the prompt's time includes waiting."""
        now, tokens = time.monotonic(), self._counts.get(index, 0)
        first = self._first.get(index, now)
        waited, spent = 1000 * (first - self._began), 1000 * (now - first)
        return {
            "prompt_n": size,
            "prompt_ms": round(waited, 3),
            "prompt_per_second": _rate(size, waited),
            "predicted_n": tokens,
            "predicted_ms": round(spent, 3),
            "predicted_per_second": _rate(tokens - 1, spent),
        }


def _rate(count: int, milliseconds: float) -> float:
    return round(1000 * count / milliseconds, 3) if count > 0 and milliseconds > 0 else 0.0
