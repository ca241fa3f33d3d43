"""Converts Python keyword arguments in messages of the library to command-line flags."""

from __future__ import annotations

import re

_SETTINGS_FROM_FILES = frozenset({"train", "evolve"})
"""Commands with a TOML file, where a name is followed by ``=`` as in Python."""

_NAMES = (
    "chat_template",
    "compute",
    "context",
    "device",
    "dtype",
    "kv_dtype",
    "max_tokens",
    "min_p",
    "offline",
    "strict",
    "temperature",
    "threads",
    "top_k",
    "top_p",
    "window",
)
_KEYWORD = re.compile(rf"""\b({"|".join(_NAMES)})=("[^"]*"|'[^']*'|[\w.+-]+)""")


def as_flags(text: str, verb: str) -> str:
    """Write ``context=90`` as ``--context 90`` and ``strict=False`` as ``--no-strict``, for a command with flags."""
    return text if verb in _SETTINGS_FROM_FILES else _KEYWORD.sub(_flag, text)


def _flag(match: re.Match[str]) -> str:
    name, value = match[1].replace("_", "-"), match[2].strip("\"'")
    return {"True": f"--{name}", "False": f"--no-{name}"}.get(value, f"--{name} {value}")
