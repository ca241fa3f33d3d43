"""Pieces of streamed chat completions, as servers of OpenAI's API send them, and what others send instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volumetric.hints import shown


@dataclass(frozen=True, slots=True)
class Piece:
    """What an event of a stream tells.

    Attributes
    ----------
    text, thought : what is said, and reasoning
    finished : a text has ended
    last : nothing follows
    tokens, prompt_tokens, cached_tokens : as the server counts them; 0 where it does not tell
    error : why the answer does not go on
    """

    text: str = ""
    thought: str = ""
    finished: bool = False
    last: bool = False
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""


def piece_of(line: bytes) -> Piece | None:
    """Return what a line of a stream tells; None for comments, names of events and what is empty.

    Servers leave fields out, or send null for them, as they like.

    Raises
    ------
    ValueError : what it tells is no piece of a chat completion
    """
    if not line.startswith(b"data:"):
        return None
    data = line[5:].strip()
    if data == b"[DONE]":
        return Piece(last=True)
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, Mapping):
        raise ValueError(f"a piece of a chat completion was expected, got {shown(data.decode(errors='replace'))}")
    if event.get("error"):
        return Piece(error=error_of(data))
    choices = [choice for choice in _list(event.get("choices")) if isinstance(choice, Mapping)]
    deltas = [_fields(choice.get("delta")) for choice in choices]
    usage = _fields(event.get("usage"))
    return Piece(
        text="".join(_text(delta.get("content")) for delta in deltas),
        thought="".join(_text(delta.get("reasoning_content") or delta.get("reasoning")) for delta in deltas),
        finished=any(choice.get("finish_reason") for choice in choices),
        tokens=_count(usage.get("completion_tokens")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(_fields(usage.get("prompt_tokens_details")).get("cached_tokens")),
    )


def error_of(body: bytes) -> str:
    """Return the message of an error, or the beginning of what came in its place."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, Mapping) else error)[:1000]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body.decode(errors="replace").strip()[:300]


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
