"""The body of a chat completion."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from volumetric.serve.fields.sampling_fields import SamplingFields, check_tops
from volumetric.serve.problem import bad_request

MOST_MESSAGES: Final = 8192
MOST_PARTS: Final = 1024
"""Most parts, or calls, of a message."""
Role = Literal["system", "developer", "user", "assistant", "tool"]


class MessagePart(msgspec.Struct, kw_only=True):
    """A part of a message. Only text parts are supported, and refusals, which are texts of the assistant."""

    type: str
    text: str | None = None
    refusal: str | None = None

    @property
    def read(self) -> str | None:
        """The text; None if the part is not text."""
        return self.refusal if self.type == "refusal" else self.text if self.type == "text" else None


class FunctionCall(msgspec.Struct, kw_only=True):
    """A tool call of the assistant that a client sends back."""

    class Function(msgspec.Struct, kw_only=True):
        """Name of the function, and its arguments as JSON text."""

        name: str
        arguments: str | dict[str, Any] = "{}"

    function: Function
    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = None


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message of a conversation. Fields that clients copy from answers are accepted if empty."""

    role: Role
    content: str | Annotated[list[MessagePart], Meta(max_length=MOST_PARTS)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[FunctionCall], Meta(max_length=MOST_PARTS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: Any = None
    function_call: Any = None


class JsonSchema(msgspec.Struct, kw_only=True):
    """``response_format.json_schema``; it is always enforced, whatever `strict` says."""

    name: str = "answer"
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``response_format``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Accept a schema next to the type, as llama-server does, as ``json_schema``."""
        if self.schema is not None and self.json_schema is None and self.type != "text":
            self.type, self.json_schema, self.schema = "json_schema", JsonSchema(schema=self.schema), None
        if self.schema is not None:
            raise bad_request(
                "response_format.schema requires a JSON type, and excludes json_schema", param="response_format.schema"
            )


class Prediction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``prediction``: a text that is expected to resemble the answer."""

    type: Literal["content"]
    content: str | Annotated[list[MessagePart], Meta(max_length=MOST_PARTS)]


class ChatRequest(SamplingFields, kw_only=True):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Meta(max_length=MOST_MESSAGES)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    modalities: list[str] | None = None
    prediction: Prediction | None = None

    def check(self) -> None:
        """Raise `RequestError` for fields that contradict each other or are not supported."""
        self.check_streaming()
        if not self.messages:
            raise bad_request("messages must hold at least one message", param="messages", code="invalid_value")
        if self.modalities not in (None, ["text"]):
            raise bad_request('modalities can only be ["text"]', param="modalities")
        both = self.max_tokens, self.max_completion_tokens
        if None not in both and both[0] != both[1]:
            raise bad_request("max_tokens and max_completion_tokens differ: send only one of them", param="max_tokens")
        if self.max_tokens is None:
            self.max_tokens = self.max_completion_tokens
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_request("top_logprobs requires logprobs: true", param="top_logprobs")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise bad_request(
                "continue_final_message requires a message of the assistant at the end", param="continue_final_message"
            )
        if self.continue_final_message and self.messages[-1].tool_calls:
            raise bad_request(
                "a message with tool calls is complete, and cannot be continued", param="continue_final_message"
            )

    @property
    def tops(self) -> int | None:
        """Number of alternatives returned for each token; None: no log-probabilities."""
        return check_tops(self.top_logprobs or 0, "top_logprobs") if self.logprobs else None

    @property
    def predicted(self) -> str:
        """The text of ``prediction``; empty if absent. Raises `RequestError` for anything but text."""
        return "" if self.prediction is None else _text(self.prediction.content, "prediction")

    def conversation(self) -> list[dict[str, Any]]:
        """Return the messages in the form that templates expect. Raises `RequestError` for anything but text."""
        return [_template_message(message, f"messages[{i}]") for i, message in enumerate(self.messages)]


def _template_message(message: Message, where: str) -> dict[str, Any]:
    """Return a message for the template. Raises `RequestError` for audio, `function_call` and missing text."""
    for name in ("audio", "function_call"):
        if getattr(message, name) is not None:
            raise bad_request(
                f"{where}.{name} is not supported: this server accepts text only", param=f"{where}.{name}"
            )
    fields: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _text(message.content, where),
    }
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call, f"{where}.tool_calls[{i}]")},
            }
            for i, call in enumerate(message.tool_calls)
        ]
    if message.reasoning_content is None:
        message.reasoning_content = message.reasoning
    for name in ("name", "tool_call_id", "reasoning_content"):
        value = getattr(message, name)
        if value is not None:
            fields[name] = value
    if message.role != "assistant" and message.content is None:
        raise bad_request(f"{where}.content must be text", param=f"{where}.content", code="invalid_type")
    return fields


def _text(content: str | list[MessagePart] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for i, part in enumerate(content):
        text, place = part.read, f"{where}.content[{i}]"
        if text is None and part.type in ("text", "refusal"):
            raise bad_request(
                f"{place}.{part.type} is missing", param=f"{place}.{part.type}", code="missing_required_parameter"
            )
        if text is None:
            raise bad_request(f"{place} has the type {part.type!r}: this server accepts text only", param=place)
        texts.append(text)
    return "".join(texts)


def _arguments(call: FunctionCall, where: str) -> Any:
    """Templates expect arguments as a dict; text that is not a JSON object is left as it is."""
    arguments = call.function.arguments
    if isinstance(arguments, dict):
        return arguments
    try:
        read = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return read if isinstance(read, dict) else arguments
