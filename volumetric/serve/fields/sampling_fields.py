"""Fields of sampling: those that chat and text completions share, and the sampling parameters they set."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from volumetric.base.errors import SpecError
from volumetric.generate.params import SamplingParams
from volumetric.serve.problem import bad_request, problem_of

MOST_TEXTS = 8
MOST_STOPS = 16
MOST_STOP_IDS = 1024
MOST_BIASES = 2**19
"""Larger than any vocabulary; the model's vocabulary is a second bound."""
MOST_CHOICES = 2**16
MOST_TOPS = 20
MOST_ALLOWED = 32_768
LIKELIEST = 1e-9
"""A top-p that keeps only the most likely token, as OpenAI's 0 does: its probability is never below 1e-9."""


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``stream_options``."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``structured_outputs`` of vLLM: a constraint on the output."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_fallback: bool | None = None


class SamplingFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of every request for text; None is "not set". See `volumetric.generate.params.SamplingParams`."""

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
    min_tokens: int | None = None
    allowed_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    repetition_window: int | None = None
    logit_bias: Annotated[dict[str, float], Meta(max_length=MOST_BIASES)] | None = None
    n: int | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None
    guided_json: dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Meta(max_length=MOST_CHOICES)] | None = None
    grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    timings_per_token: bool | None = None

    def __post_init__(self) -> None:
        """Accept ``structured_outputs`` as the older ``guided_*`` fields. Raises `RequestError`."""
        form, self.structured_outputs = self.structured_outputs, None
        if form is None:
            return
        place = "structured_outputs"
        named = [name for name in ("json", "regex", "choice", "grammar", "json_object") if getattr(form, name)]
        if len(named) != 1:
            raise bad_request(f"{place} must have one of json, regex, choice, grammar and json_object", param=place)
        self.guided_json = self.guided_json or (_schema(form.json) if form.json else None)
        if form.json_object:
            self.guided_json = {"type": "object"}
        for name in ("regex", "choice", "grammar"):
            field = name if name == "grammar" else f"guided_{name}"
            if getattr(form, name) is not None:
                setattr(self, field, getattr(form, name))

    @property
    def tops(self) -> int | None:
        """Number of alternatives returned for each token; None: no log-probabilities. Raises `RequestError`."""
        raise NotImplementedError

    @property
    def forms(self) -> list[tuple[str, Any, str]]:
        """Constraints on the answer: the kind and text of each, and the field that sets it."""
        fields = {
            "guided_json": ("json_schema", self.guided_json),
            "guided_regex": ("regex", self.guided_regex),
            "guided_choice": ("choice", self.guided_choice),
            "grammar": ("cfg", self.grammar),
        }
        return [(kind, form, name) for name, (kind, form) in fields.items() if form is not None]

    @property
    def streams_usage(self) -> bool:
        """Whether a stream ends with its token usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def streams_each_usage(self) -> bool:
        """Whether each chunk of a stream carries the token usage so far."""
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)

    @property
    def texts(self) -> int:
        """Number of requested texts."""
        count = 1 if self.n is None else self.n
        if not 1 <= count <= MOST_TEXTS:
            raise bad_request(f"n must be from 1 to {MOST_TEXTS}, got {count}", param="n", code="invalid_value")
        if self.best_of not in (None, count):
            raise bad_request(
                f"best_of is {self.best_of} and n is {count}: this server does not rank texts, so they must be equal",
                param="best_of",
                code="invalid_value",
            )
        return count

    def check_streaming(self) -> None:
        """Raise `RequestError` for stream options without ``stream: true``."""
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options requires stream: true", param="stream_options", code="invalid_value")

    def explicit(self, logprobs: int | None) -> dict[str, Any]:
        """Return the sampling parameters that the request sets, checked one by one so that an error names its field.

        Raises
        ------
        RequestError : a value is out of range
        """
        if isinstance(self.stop, list) and len(self.stop) > MOST_STOPS:
            raise bad_request(f"stop must have at most {MOST_STOPS} texts, got {len(self.stop)}", param="stop")
        if len(self.allowed_token_ids or ()) > MOST_ALLOWED:
            count = len(self.allowed_token_ids or ())
            raise bad_request(
                f"allowed_token_ids must have at most {MOST_ALLOWED} ids, got {count}", param="allowed_token_ids"
            )
        if None not in (self.min_tokens, self.max_tokens) and (self.min_tokens or 0) > (self.max_tokens or 0) > 0:
            raise bad_request("min_tokens is more than max_tokens", param="min_tokens", code="invalid_value")
        stop = None if self.stop in (None, "", []) else self.stop
        stated = {
            "max_tokens": None if self.max_tokens == -1 else self.max_tokens,  # -1 means "no limit" in llama.cpp
            "temperature": self.temperature,
            "top_p": LIKELIEST if self.top_p == 0 else self.top_p,
            "top_k": None if self.top_k is None else max(self.top_k, 0),  # -1 means "off" in vLLM
            "min_p": self.min_p,
            "seed": self.seed,
            "stop": (stop,) if isinstance(stop, str) else stop and tuple(stop),
            "stop_ids": self.stop_token_ids and tuple(self.stop_token_ids),
            "ignore_eos": self.ignore_eos,
            "min_tokens": self.min_tokens,
            "allowed_ids": self.allowed_token_ids and tuple(self.allowed_token_ids),
            "include_stop": self.include_stop_str_in_output,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "repetition_window": self.repetition_window,
            "logit_bias": self.logit_bias,
            "logprobs": logprobs,
        }
        parameters = {name: value for name, value in stated.items() if value is not None}
        for name, value in parameters.items():
            try:
                SamplingParams(**{name: value})
            except SpecError as error:
                field = {"stop_ids": "stop_token_ids", "allowed_ids": "allowed_token_ids"}.get(name, name)
                raise problem_of(error, param=field) from None
        return parameters


def _schema(schema: str | dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema, which may be JSON text. Raises `RequestError`."""
    place = "structured_outputs.json"
    try:
        read = msgspec.json.decode(schema) if isinstance(schema, str) else schema
    except (msgspec.DecodeError, RecursionError):
        raise bad_request(f"{place} is not JSON", param=place, code="invalid_json") from None
    if not isinstance(read, dict):
        raise bad_request(f"{place} must be a JSON schema", param=place, code="invalid_type")
    return read


def check_tops(tops: int, param: str) -> int:
    """Check the number of alternatives returned for each token. Raises `RequestError`."""
    if not 0 <= tops <= MOST_TOPS:
        raise bad_request(f"{param} must be from 0 to {MOST_TOPS}, got {tops}", param=param, code="invalid_value")
    return tops
