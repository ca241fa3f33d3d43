"""Earlier calls of a conversation, in the form that its chat template expects."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from volumetric.serve.tools.call_form import CallForm

_NAME: Final = r"\w+(?:\.\w+|\[['\"]\w+['\"]\])*(?:\.|\[['\"])arguments(?:['\"]\])?"
_JOINED: Final = re.compile(rf"[+~]\s*{_NAME}\s*(?:[+~]|-?[}}%]\}})")
_WRITTEN: Final = re.compile(r"arguments(?:['\"]\])?\s*(?:\|\s*(?:tojson|items)|is (?:not )?(?:string|mapping))")
_ASKS_FOR_NONE: Final = re.compile(r"message(?:\.content|\[['\"]content['\"]\])\s+is\s+(?:not\s+)?none")


def calls_for_template(
    messages: Sequence[dict[str, Any]], template: str, form: CallForm | None
) -> list[dict[str, Any]]:
    """Return messages with their calls in the form that a template expects.

    Arguments are dicts, or text if the template concatenates them. For a template without calls, they are written into
    the content in the model's format `form`. If the format builds ids from names and numbers, all calls get such ids.
    """
    if form is not None and form.ids:
        messages = _with_ids(messages, form)
    joins = bool(_JOINED.search(template)) and not _WRITTEN.search(template)
    asks_for_none = bool(_ASKS_FOR_NONE.search(template))
    thinks = "message.thinking" in template
    rewritten: list[dict[str, Any]] = []
    count = 0
    for message in messages:
        calls = message.get("tool_calls")
        if not calls:
            rewritten.append(message)
            continue
        content = message.get("content") or ""
        if form is not None and "tool_calls" not in template:
            called = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
            written, count = form.write_calls(called, count), count + len(called)
            content = f"{content}\n{written}" if content else written
            rewritten.append(
                {key: value for key, value in message.items() if key != "tool_calls"} | {"content": content}
            )
            continue
        message = message | {"content": None if asks_for_none and not content else content}
        if joins:
            message["tool_calls"] = [_with_text_arguments(call) for call in calls]
        if thinks and not content and "reasoning_content" in message:
            message["thinking"] = message["reasoning_content"]  # gpt-oss' template reads it only before calls
        rewritten.append(message)
    return rewritten


def _with_text_arguments(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return call | {"function": call["function"] | {"arguments": text}}


def _with_ids(messages: Sequence[dict[str, Any]], form: CallForm) -> list[dict[str, Any]]:
    """Return messages whose calls, and their results, have ids built from names and numbers."""
    rewritten: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    count = 0
    for message in messages:
        if calls := message.get("tool_calls"):
            new_calls: list[dict[str, Any]] = []
            for call in calls:
                id, count = form.new_id(call["function"]["name"], str(count)), count + 1
                ids[call.get("id") or id] = id
                new_calls.append(call | {"id": id})
            rewritten.append(message | {"tool_calls": new_calls})
        else:
            known = ids.get(message.get("tool_call_id") or "")
            rewritten.append(message | {"tool_call_id": known} if known and message["role"] == "tool" else message)
    return rewritten
