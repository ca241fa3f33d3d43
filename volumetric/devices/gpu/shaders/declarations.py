"""Top-level declarations of a module, and which of them the kernel needs.

Files are linked whole, but a kernel uses only part of them. Unreachable declarations are removed: this saves compile
time, and the module requests no unused workgroup memory or extensions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

_NAME = re.compile(r"[A-Za-z_]\w*")
_MARK = re.compile(r"[{};]")
_DEPTH = {"{": 1, "}": -1, ";": 0}
_FUNCTION = re.compile(r"\bfn\s+(\w+)\s*\(")
_WORKGROUP = re.compile(r"\bvar<workgroup>\s+(\w+)")


@dataclass(frozen=True, slots=True)
class WgslDeclaration:
    """Top-level text of a module.

    Attributes
    ----------
    name : of a function or of a workgroup variable, else empty
    mentions : every name in the text
    entry : whether it is an entry point
    """

    name: str
    text: str
    mentions: frozenset[str]
    entry: bool


def declarations(text: str) -> Iterator[WgslDeclaration]:
    """Yield the top-level declarations of a module without comments."""
    start, depth = 0, 0
    for mark in _MARK.finditer(text):
        depth += _DEPTH[mark.group()]
        if depth == 0 and mark.group() in ";}":
            yield _declaration(text[start : mark.end()])
            start = mark.end()
    if text[start:].strip():
        yield _declaration(text[start:])


@lru_cache(128)
def keep_reachable(text: str) -> str:
    """Return the text without functions and workgroup variables that no entry point reaches."""
    parts = list(declarations(text))
    named = {part.name: part for part in parts if part.name}
    reached = _reachable(named, [part for part in parts if part.entry])
    return "".join(part.text for part in parts if not part.name or part.name in reached)


@lru_cache(4096)
def _declaration(text: str) -> WgslDeclaration:
    """Describe a declaration; modules share most of theirs."""
    match = _FUNCTION.search(text) if text.rstrip().endswith("}") else _WORKGROUP.search(text)
    return WgslDeclaration(
        name=match.group(1) if match else "",
        text=text,
        mentions=frozenset(_NAME.findall(text)),
        entry="@compute" in text,
    )


def _reachable(named: Mapping[str, WgslDeclaration], entries: list[WgslDeclaration]) -> set[str]:
    reached = {entry.name for entry in entries}
    pending = list(entries)
    while pending:
        new = pending.pop().mentions & named.keys() - reached
        reached |= new
        pending += [named[name] for name in new]
    return reached
