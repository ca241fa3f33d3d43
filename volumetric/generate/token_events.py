"""Output of a generation: an event for each token, and a summary at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from volumetric.base.notebook_html import ShowsFields, text_page

FinishReason = Literal["stop", "length", "cancelled"]
"""``stop``: an end-of-text id or a stop text; ``length``: max_tokens or the end of the context; ``cancelled``: the
consumer disconnected or cancelled."""

TopLogprobs = tuple[tuple[int, float], ...]


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Draw:
    """A drawn token; with log-probabilities if requested.

    It is never changed, but not frozen: creating one takes a quarter of the time, for each token.
    """

    token: int
    logprob: float | None = None
    top_logprobs: TopLogprobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStats(ShowsFields):
    """Counts and times of one generation.

    Attributes
    ----------
    prompt_tokens : tokens of the prompt, including cached ones
    cached_tokens : tokens of the prompt that were in the state already
    generated_tokens : tokens drawn, including the one that ended the text
    prompt_seconds : time to compute the prompt
    generation_seconds : time for the tokens after the first
    peak_bytes : peak memory of the process so far; None if the system does not report it
    device_bytes : weights, scratch and state capacity on the device
    drafted_tokens, accepted_tokens : tokens that a draft proposed, and those that were accepted
    """

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    prompt_seconds: float
    first_token_seconds: float
    generation_seconds: float
    peak_bytes: int | None
    device_bytes: int
    finish_reason: FinishReason
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def acceptance(self) -> float | None:
        """Share of the proposed tokens that were accepted; None if none was proposed."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else None

    @property
    def prompt_tps(self) -> float:
        """Prompt tokens computed per second, without cached ones."""
        return _rate(self.prompt_tokens - self.cached_tokens, self.prompt_seconds)

    @property
    def generation_tps(self) -> float:
        """Tokens generated per second, without the first, which is computed with the prompt."""
        return _rate(self.generated_tokens - 1, self.generation_seconds)


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count > 0 and seconds > 0 else 0.0


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class TokenEvent:
    """One generated token. It is not changed once it is returned, but not frozen, as `Draw`.

    Attributes
    ----------
    index : 0 for the first generated token
    text : text that became certain with this token. Empty while a character or a stop text is incomplete; the last
        event has all held-back text.
    finish_reason, stats : only in the last event
    likelihoods, likeliest : log-probabilities of a job's targets, with the first token of its first text
    """

    index: int
    token_id: int
    text: str
    logprob: float | None = None
    top_logprobs: TopLogprobs | None = None
    finish_reason: FinishReason | None = None
    stats: GenerationStats | None = None
    likelihoods: tuple[float, ...] | None = None
    likeliest: tuple[TopLogprobs, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A finished (or cancelled) generation.

    Attributes
    ----------
    text : the generated text without stop text and end-of-text token; empty if the model has no tokenizer
    token_ids : all drawn ids, including the end-of-text id
    seed : seed of the draws; the same seed gives the same text on the same device. None when greedy.
    logprobs, top_logprobs : log-probabilities of each token, if requested
    likelihoods, likeliest : log-probabilities of a job's targets, in its first text
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stats: GenerationStats
    seed: int | None = None
    logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[TopLogprobs, ...] | None = None
    likelihoods: tuple[float, ...] | None = None
    likeliest: tuple[TopLogprobs, ...] | None = None

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """Return the text for notebooks, and a line about its tokens."""
        stats = self.stats
        speed = f", {stats.generation_tps:.0f} a second" if stats.generation_tps else ""
        note = f"{stats.prompt_tokens} tokens of the prompt, {stats.generated_tokens} generated{speed}; "
        return text_page(self.text or " ".join(map(str, self.token_ids)), note + f"ended by {self.finish_reason}")
