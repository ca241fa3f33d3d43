"""Fields of sampling: what chat and text completions have in common, and the parameters that they ask for."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from volumetric.errors import SpecError
from volumetric.generate.params import SamplingParams
from volumetric.serve.problem import bad, problem_of

MOST_TEXTS = 8
MOST_STOPS = 16
MOST_STOP_IDS = 1024
MOST_BIASES = 2**19
"""More than any vocabulary has; a model's own number counts, too."""
MOST_CHOICES = 2**16
MOST_TOPS = 20
LIKELIEST = 1e-9
"""A top-p that leaves the likeliest token alone, as OpenAI's 0 does: one in a thousand million has no less."""


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``stream_options``."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Sampled(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What every request for text may say; None is "not given". See `volumetric.generate.params.SamplingParams`."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Annotated[list[int], Meta(max_length=MOST_STOP_IDS)] | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    repetition_window: int | None = None
    logit_bias: Annotated[dict[str, float], Meta(max_length=MOST_BIASES)] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None
    guided_json: dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Meta(max_length=MOST_CHOICES)] | None = None
    grammar: str | None = None

    @property
    def tops(self) -> int | None:
        """Alternatives to tell of each token; None: no log-probabilities. Raises `RequestError`."""
        raise NotImplementedError

    @property
    def streams_usage(self) -> bool:
        """Whether a stream ends with what it cost."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def texts(self) -> int:
        """How many texts are asked for."""
        count = 1 if self.n is None else self.n
        if not 1 <= count <= MOST_TEXTS:
            raise bad(f"n must be from 1 to {MOST_TEXTS}, got {count}", param="n", code="invalid_value")
        return count

    def check_streaming(self) -> None:
        """Raise `RequestError` for options of a stream where none is asked for."""
        if self.stream_options is not None and not self.stream:
            raise bad("stream_options takes stream: true", param="stream_options", code="invalid_value")

    def explicit(self, logprobs: int | None) -> dict[str, Any]:
        """Return the sampling parameters that the request states, checked one by one so that an error names its field.

        Raises
        ------
        RequestError : a value is out of range
        """
        if isinstance(self.stop, list) and len(self.stop) > MOST_STOPS:
            raise bad(f"stop takes at most {MOST_STOPS} texts, got {len(self.stop)}", param="stop")
        stop = None if self.stop in (None, "", []) else self.stop
        stated = {
            "max_tokens": None if self.max_tokens == -1 else self.max_tokens,  # -1 is llama.cpp's word for "no bound"
            "temperature": self.temperature,
            "top_p": LIKELIEST if self.top_p == 0 else self.top_p,
            "top_k": None if self.top_k is None else max(self.top_k, 0),  # -1 is vLLM's word for "off"
            "min_p": self.min_p,
            "seed": self.seed,
            "stop": (stop,) if isinstance(stop, str) else stop and tuple(stop),
            "stop_ids": self.stop_token_ids and tuple(self.stop_token_ids),
            "ignore_eos": self.ignore_eos,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "repetition_window": self.repetition_window,
            "logit_bias": self.logit_bias,
            "logprobs": logprobs,
        }
        found = {name: value for name, value in stated.items() if value is not None}
        for name, value in found.items():
            try:
                SamplingParams(**{name: value})
            except SpecError as error:
                told = {"stop_ids": "stop_token_ids"}.get(name, name)
                raise problem_of(error, param=told) from None
        return found


def check_tops(tops: int, param: str) -> int:
    """Return how many alternatives of a token to tell. Raises `RequestError`."""
    if not 0 <= tops <= MOST_TOPS:
        raise bad(f"{param} must be from 0 to {MOST_TOPS}, got {tops}", param=param, code="invalid_value")
    return tops
