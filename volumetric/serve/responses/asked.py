"""A request for a response as one for a chat, and errors of chats in the words of responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from volumetric.hints import shown
from volumetric.serve.fields.chat import ChatRequest
from volumetric.serve.fields.response import ResponseRequest
from volumetric.serve.fields.sampled import Sampled
from volumetric.serve.problem import RequestError, bad
from volumetric.serve.responses.items import messages_of

_SAME: Final = (
    *sorted(
        {field.name for field in msgspec.structs.fields(Sampled)} - {"max_tokens", "n", "best_of", "stream_options"}
    ),
    "include_reasoning",
    "parallel_tool_calls",
    "chat_template_kwargs",
)
"""Fields that mean the same in both."""
_NAMES: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format.json_schema.schema": "text.format.schema",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "top_logprobs",
}
"""What chats call a field, and its name here."""
_CHATS: Final = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in _NAMES))
_TOOL: Final = {"type", "name", "description", "parameters", "strict"}


def chat_of(asked: ResponseRequest) -> ChatRequest:
    """Return the chat that a request comes to. Raises `RequestError` for what cannot be honoured."""
    asked.check()
    tops, text = asked.tops, asked.text
    return ChatRequest(
        **{name: getattr(asked, name) for name in _SAME},
        messages=messages_of(asked.input, asked.instructions),
        max_tokens=asked.max_output_tokens,
        logprobs=tops is not None,
        top_logprobs=tops,
        response_format=None if text is None or text.format is None else text.format.told(),
        reasoning_effort=None if asked.reasoning is None else asked.reasoning.effort,
        tools=None if asked.tools is None else [_tool(tool, f"tools[{i}]") for i, tool in enumerate(asked.tools)],
        tool_choice=_choice(asked.tool_choice),
    )


def in_its_words(problem: RequestError) -> RequestError:
    """Return a problem of a chat by the names that its fields have in a request for a response."""
    return RequestError(
        problem.status,
        _CHATS.sub(lambda found: _NAMES[found[0]], str(problem)),
        kind=problem.kind,
        code=problem.code,
        param=problem.param and _CHATS.sub(lambda found: _NAMES[found[0]], problem.param).replace("].function", "]"),
        headers=problem.headers,
    )


def _tool(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a function as chats write it, one level deeper."""
    if given.get("type") != "function":
        told = f"{where} is of the type {shown(given.get('type'))}: this server knows functions alone"
        raise bad(told, param=f"{where}.type")
    for name in given.keys() - _TOOL:
        if given[name] not in (None, False):
            raise bad(f"{where}.{name} is refused: this server does not honour it", param=f"{where}.{name}")
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {key: given[key] for key in names if given.get(key) is not None}}


def _choice(given: Any) -> Any:
    if isinstance(given, Mapping) and given.get("type") == "allowed_tools":
        tools = given.get("tools")
        named = [_choice(tool) for tool in tools] if isinstance(tools, Sequence) else tools
        return {"type": "allowed_tools", "allowed_tools": {"mode": given.get("mode"), "tools": named}}
    if isinstance(given, Mapping) and given.get("type") == "function":
        return {"type": "function", "function": {"name": given.get("name")}}
    return given
