"""What an answer tells: the interface of answers of all endpoints, and what they say of tokens, times and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from volumetric.generate.events import Generation, TokenEvent, TopLogprobs
from volumetric.serve.problem import RequestError

Told = dict[str, Any]
"""What becomes JSON."""
Drawn = tuple[int, float, TopLogprobs]
"""A token, its log-probability, and the likeliest others with theirs."""


class Answer(Protocol):
    """How the texts of a request are told, whole or as the events of a stream."""

    def whole(self, prompts: Sequence[Sequence[Generation]]) -> Told:
        """Return the answer to prompts with some texts each."""
        ...

    def begun(self) -> Iterable[bytes]:
        """Return the events before the first token."""
        ...

    def opening(self, index: int) -> Sequence[Told]:
        """Return what comes before the first token of a text."""
        ...

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> Sequence[Told]:
        """Return what there is to tell of some tokens of a text."""
        ...

    def closing(self, index: int, reason: str) -> Sequence[Told]:
        """Return what comes after the last token of a text."""
        ...

    def framed(self, told: Told) -> bytes:
        """Return the event that tells something of a text."""
        ...

    def failed(self, problem: RequestError) -> bytes:
        """Return the last event of a stream that cannot go on."""
        ...

    def ended(self, prompts: Sequence[Sequence[Generation]]) -> Iterable[bytes]:
        """Return the events behind all texts."""
        ...


def drawn_of(generation: Generation) -> list[Drawn]:
    """Return the tokens of a whole text; none where no log-probabilities were asked for."""
    if generation.logprobs is None or generation.top_logprobs is None:
        return []
    return list(zip(generation.token_ids, generation.logprobs, generation.top_logprobs, strict=True))


def drawn_in(tokens: Sequence[TokenEvent]) -> list[Drawn]:
    """Return the tokens of a piece."""
    return [(one.token_id, one.logprob or 0.0, one.top_logprobs or ()) for one in tokens]


def finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI says −9999 where a token cannot be drawn."""
    return max(logprob, -9999.0)


def tokens_told(drawn: Sequence[Drawn], text_of: Callable[[int], str]) -> list[Told]:
    """Return tokens with their log-probabilities and alternatives, in the shape of chats."""

    def token(token: int, logprob: float) -> Told:
        text = text_of(token)
        # A token may be part of a character; then its text does not tell its bytes.
        data = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
        return {"token": text, "logprob": finite(logprob), "bytes": data}

    return [token(id, logprob) | {"top_logprobs": [token(*one) for one in tops]} for id, logprob, tops in drawn]


def usage(prompts: Sequence[Sequence[Generation]]) -> Told:
    """Return how many tokens went in and came out; a prompt counts once, whatever number of texts it has."""
    asked = sum(generations[0].stats.prompt_tokens for generations in prompts)
    cached = sum(generations[0].stats.cached_tokens for generations in prompts)
    stats = [one.stats for generations in prompts for one in generations]
    made = sum(one.generated_tokens for one in stats)
    accepted = sum(one.accepted_tokens for one in stats)
    return {
        "prompt_tokens": asked,
        "completion_tokens": made,
        "total_tokens": asked + made,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(one.drafted_tokens for one in stats) - accepted,
        },
    }


def timings(generation: Generation) -> Told:
    """Return times of a text, by llama-server's names."""
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
