"""The body of a request for a response."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from volumetric.base.hints import format_value
from volumetric.serve.fields.chat_request import MOST_MESSAGES, JsonSchema, ResponseFormat
from volumetric.serve.fields.foreign_fields import DROPPED_INCLUDES
from volumetric.serve.fields.sampling_fields import SamplingFields, check_tops
from volumetric.serve.problem import bad_request

LOGPROBS = "message.output_text.logprobs"


class TextFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``text.format``: the ``response_format`` of chats, with the schema one level higher."""

    type: Literal["text", "json_object", "json_schema"]
    name: str = "answer"
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None

    def as_response_format(self) -> ResponseFormat:
        """Convert to the ``response_format`` of a chat. Raises `RequestError`."""
        if self.type == "json_schema" and self.schema is None:
            raise bad_request("text.format.schema is missing", param="text.format.schema")
        if self.type != "json_schema" and self.schema is not None:
            raise bad_request('text.format.schema requires the type "json_schema"', param="text.format.schema")
        schema = None if self.schema is None else JsonSchema(name=self.name, schema=self.schema, strict=self.strict)
        return ResponseFormat(type=self.type, json_schema=schema)


class TextConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``text``; its verbosity has no effect, as in chats."""

    format: TextFormat | None = None
    verbosity: str | None = None


class Reasoning(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``reasoning``: reasoning is returned verbatim, not summarised."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponseRequest(SamplingFields, kw_only=True):
    """``POST /v1/responses``."""

    input: str | Annotated[list[dict[str, Any]], Meta(max_length=MOST_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include_reasoning: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include: list[str] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    metadata: dict[str, str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def check(self) -> None:
        """Raise `RequestError` for fields that contradict each other or are not supported."""
        self.check_streaming()
        stateless = "this server stores no responses: send the whole conversation as input"
        refused = {
            "previous_response_id": (self.previous_response_id is not None, stateless),
            "conversation": (self.conversation is not None, stateless),
            "background": (self.background, "this server has no background responses"),
            "max_tokens": (self.max_tokens is not None, "it is called max_output_tokens here"),
            "n": (self.n not in (None, 1), "a response is one text"),
            "best_of": (self.best_of not in (None, 1), "a response is one text"),
            "timings_per_token": (self.timings_per_token, "events of responses carry no timings"),
            "stream_options": (self.streams_each_usage, "only the last event of a response carries usage"),
        }
        for name, (is_set, why) in refused.items():
            if is_set:
                raise bad_request(f"{name} is refused: {why}", param=name)
        reasoning = self.reasoning or Reasoning()
        for name in ("summary", "generate_summary"):
            if getattr(reasoning, name) not in (None, "auto", "detailed"):
                message = f"reasoning.{name} is refused: reasoning is returned verbatim, in items of the type reasoning"
                raise bad_request(f"{message}; it can be 'auto' or 'detailed'", param=f"reasoning.{name}")
        for i, what in enumerate(self.include or ()):
            if what != LOGPROBS and what not in DROPPED_INCLUDES:
                raise bad_request(
                    f"include supports only {LOGPROBS!r}, got {format_value(what)}", param=f"include[{i}]"
                )
        self.include = [what for what in self.include or () if what == LOGPROBS]

    @property
    def tops(self) -> int | None:
        """Number of alternatives returned for each token; None: no log-probabilities."""
        if self.top_logprobs is None and not self.include:
            return None
        return check_tops(self.top_logprobs or 0, "top_logprobs")
