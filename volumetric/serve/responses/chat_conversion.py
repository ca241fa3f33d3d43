"""Converts a request for a response to a chat request, items to messages, and field names in errors back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from volumetric.base.hints import format_value, suggestion
from volumetric.serve.bodies import convert_fields
from volumetric.serve.fields.chat_request import ChatRequest, FunctionCall, Message
from volumetric.serve.fields.response_request import ResponseRequest
from volumetric.serve.fields.sampling_fields import SamplingFields
from volumetric.serve.problem import RequestError, bad_request

Status = Literal["in_progress", "completed", "incomplete"]
T = TypeVar("T", bound=msgspec.Struct)


class _InputItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of all items; clients send back the ids and states of earlier answers."""

    type: str | None = None
    id: str | None = None
    status: Status | None = None


class _MessageItem(_InputItem, kw_only=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[dict[str, Any]]
    phase: str | None = None


class _CallItem(_InputItem, kw_only=True):
    call_id: str
    name: str
    arguments: str
    parsed_arguments: Any = None


class _CallOutputItem(_InputItem, kw_only=True):
    call_id: str
    output: str | list[dict[str, Any]]


class _ReasoningItem(_InputItem, kw_only=True):
    summary: list[dict[str, Any]] = []
    content: list[dict[str, Any]] | None = None
    encrypted_content: None = None


_KINDS: Final[Mapping[str, type[_InputItem]]] = {
    "message": _MessageItem,
    "function_call": _CallItem,
    "function_call_output": _CallOutputItem,
    "reasoning": _ReasoningItem,
}


def messages_of(items: str | Sequence[dict[str, Any]], instructions: str | None) -> list[Message]:
    """Convert input items to chat messages.

    Consecutive reasoning, text and calls become one message of the assistant, as the model generated them. Instructions
    and leading system items become one system message: few templates accept more.

    Raises
    ------
    RequestError : an item is malformed, or has an unsupported type
    """
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not items:
        raise bad_request("input must hold at least one item", param="input", code="invalid_value")
    messages: list[Message] = []
    for i, one in enumerate(items):
        _append_item(messages, one, f"input[{i}]")
    if not instructions:
        return messages
    if messages and messages[0].role in ("system", "developer"):
        first = messages.pop(0)
        instructions = f"{instructions}\n\n{first.content}"
    return [Message(role="system", content=instructions), *messages]


def _append_item(messages: list[Message], fields: Mapping[str, Any], where: str) -> None:
    """Add an input item to the messages of the chat. Raises `RequestError` for an unsupported item."""
    name = fields.get("type", "message")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        hint = suggestion(str(name), _KINDS, "this server stores nothing and runs no tools")
        raise bad_request(f"{where} has the type {format_value(name)}: {hint}", param=f"{where}.type")
    item = convert_fields({key: value for key, value in fields.items() if value is not None}, kind, where)
    if isinstance(item, _MessageItem):
        content = _text(item.content, f"{where}.content", ("input_text", "output_text", "refusal", "text"))
        if item.role == "assistant":
            before = _assistant(messages, lambda last: not last.content and not last.tool_calls)
            before.content = content
        else:
            messages.append(Message(role=item.role, content=content))
    elif isinstance(item, _CallItem):
        calls = _assistant(messages, lambda _: True)
        call = FunctionCall(id=item.call_id, function=FunctionCall.Function(name=item.name, arguments=item.arguments))
        if calls.tool_calls is None:
            calls.tool_calls = []
        calls.tool_calls.append(call)
    elif isinstance(item, _CallOutputItem):
        content = _text(item.output, f"{where}.output", ("input_text", "output_text", "text"))
        messages.append(Message(role="tool", content=content, tool_call_id=item.call_id))
    elif isinstance(item, _ReasoningItem):
        text = _text(item.content or [], f"{where}.content", ("reasoning_text",))
        text = text or _text(item.summary, f"{where}.summary", ("summary_text",))
        messages.append(Message(role="assistant", reasoning_content=text))


def _assistant(messages: list[Message], joins: Any) -> Message:
    """Return the message that an item of the assistant belongs to: the last one, or a new one."""
    if not messages or messages[-1].role != "assistant" or not joins(messages[-1]):
        messages.append(Message(role="assistant"))
    return messages[-1]


def _text(content: str | Sequence[Mapping[str, Any]], where: str, kinds: Sequence[str]) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for i, part in enumerate(content):
        kind = part.get("type")
        text = part.get("refusal" if kind == "refusal" else "text")
        if kind not in kinds or not isinstance(text, str):
            message = f"{where}[{i}] has the type {format_value(kind)}: this server accepts text only, as {kinds[0]}"
            raise bad_request(message, param=f"{where}[{i}]")
        texts.append(text)
    return "".join(texts)


_SAME: Final = (
    *sorted(
        {field.name for field in msgspec.structs.fields(SamplingFields)}
        - {"max_tokens", "n", "best_of", "stream_options"}
    ),
    "include_reasoning",
    "parallel_tool_calls",
    "chat_template_kwargs",
)
"""Fields with the same meaning in chats and responses."""
_NAMES: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format.json_schema.schema": "text.format.schema",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "top_logprobs",
}
"""Field names of chats, and those of responses."""
_CHATS: Final = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in _NAMES))
_TOOL: Final = {"type", "name", "description", "parameters", "strict"}


def chat_of(body: ResponseRequest) -> ChatRequest:
    """Convert a request to a chat request. Raises `RequestError` for unsupported fields."""
    body.check()
    tops, text = body.tops, body.text
    return ChatRequest(
        **{name: getattr(body, name) for name in _SAME},
        messages=messages_of(body.input, body.instructions),
        max_tokens=body.max_output_tokens,
        logprobs=tops is not None,
        top_logprobs=tops,
        response_format=None if text is None or text.format is None else text.format.as_response_format(),
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        tools=None if body.tools is None else [_tool(tool, f"tools[{i}]") for i, tool in enumerate(body.tools)],
        tool_choice=_choice(body.tool_choice),
    )


def with_response_names(problem: RequestError) -> RequestError:
    """Convert an error of a chat to the field names of a request for a response."""
    return RequestError(
        problem.status,
        _CHATS.sub(lambda match: _NAMES[match[0]], str(problem)),
        kind=problem.kind,
        code=problem.code,
        param=problem.param and _CHATS.sub(lambda match: _NAMES[match[0]], problem.param).replace("].function", "]"),
        headers=problem.headers,
    )


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Convert a function to the format of chats, which nests it one level deeper."""
    if tool.get("type") != "function":
        message = f"{where} has the type {format_value(tool.get('type'))}: this server supports only functions"
        raise bad_request(message, param=f"{where}.type")
    for name in tool.keys() - _TOOL:
        if tool[name] not in (None, False):
            raise bad_request(f"{where}.{name} is refused: this server does not support it", param=f"{where}.{name}")
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {key: tool[key] for key in names if tool.get(key) is not None}}


def _choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        named = [_choice(tool) for tool in tools] if isinstance(tools, Sequence) else tools
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": named}}
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice
