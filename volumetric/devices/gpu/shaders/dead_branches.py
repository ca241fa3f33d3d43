"""Removal of branches that header constants switch off, and of bindings that are then unused.

Compilers fold such branches, too, but the bindings they mention would still be part of the module: every dispatch would
bind a buffer for each, and WebGPU tracks every bound buffer of every dispatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from volumetric.devices.gpu.shaders.constant_expressions import Constants, constant_truth

_IF = re.compile(r"\bif\s*\(")
_ELSE = re.compile(r"\s*else\b\s*")
_BLOCK = re.compile(r"\s*\{")
_PAIRS = {"(": re.compile(r"[()]"), "{": re.compile(r"[{}]")}
_JUMP = re.compile(r"\b(?:return|break|continue)\b")
_LOCAL = re.compile(r"\b(?:let|var)\s+(\w+)|[(,]\s*(\w+)\s*:|^[ \t]+const\s+(\w+)", re.MULTILINE)
_BINDING = re.compile(r"@group\(0\)\s*@binding\(\d+\)\s*var<[^>]*>\s*(\w+)\s*:[^;]*;[^\S\n]*\n?")


@dataclass(frozen=True, slots=True)
class _Branch:
    """A block of a chain of ``if`` and ``else``; the last block of a chain may have no condition."""

    condition: str | None
    body: str


def drop_dead_branches(text: str, constants: Constants) -> str:
    """Return module text without the branches whose conditions `constants` make false.

    Chains of ``if`` and ``else`` in which a block jumps stay, except for a single ``if``: what follows a block that
    always returns would be an error in some compilers.
    """
    hidden = {name for names in _LOCAL.findall(text) for name in names if name}
    return _pruned(text, {name: value for name, value in constants.items() if name not in hidden})


def drop_unused_bindings(text: str) -> tuple[str, frozenset[str]]:
    """Return module text without the bindings that nothing in it mentions, and their names."""
    unused = frozenset(name for name in _BINDING.findall(text) if not _is_used(text, name))
    return _BINDING.sub(lambda match: "" if match[1] in unused else match[0], text), unused


def _is_used(text: str, name: str) -> bool:
    """Whether a name stands in the text more than once; not as a member, and not as a part of another name."""
    end, mentions = 0, 0
    while (start := text.find(name, end)) >= 0:
        end = start + len(name)
        before, after = text[start - 1], text[end : end + 1]
        mentions += not (before == "." or _is_of_name(before) or _is_of_name(after))
        if mentions > 1:
            return True
    return False


def _is_of_name(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _pruned(text: str, constants: Constants) -> str:
    pieces, at = list[str](), 0
    while (match := _IF.search(text, at)) is not None:
        pieces.append(text[at : match.start()])
        chain, at = _read_chain(text, match.start())
        if chain:
            pieces.append(
                _chain_text([_Branch(one.condition, _pruned(one.body, constants)) for one in chain], constants)
            )
        else:
            at = match.end()
            pieces.append(match[0])
    return "".join([*pieces, text[at:]])


def _read_chain(text: str, at: int) -> tuple[list[_Branch], int]:
    """Read the blocks of a chain that starts at `at`, and where the text goes on; no blocks if a form is unknown."""
    chain = list[_Branch]()
    while True:
        condition = None
        if (match := _IF.match(text, at)) is not None:
            end = _closing(text, match.end(), "(")
            condition, at = text[match.end() : end], end + 1
        start = _BLOCK.match(text, at)
        if start is None:
            return [], at
        end = _closing(text, start.end(), "{")
        chain.append(_Branch(condition, text[start.end() : end]))
        at = end + 1
        otherwise = _ELSE.match(text, at)
        if condition is None or otherwise is None:
            return chain, at
        at = otherwise.end()


def _closing(text: str, start: int, opening: str) -> int:
    depth = 1
    for mark in _PAIRS[opening].finditer(text, start):
        depth += 1 if mark.group() == opening else -1
        if depth == 0:
            return mark.start()
    raise ValueError(f"no end of {text[start : start + 40]!r}")


def _chain_text(chain: list[_Branch], constants: Constants) -> str:
    values = [True if one.condition is None else constant_truth(one.condition, constants) for one in chain]
    if len(chain) == 1:
        return "" if values[0] is False else "".join(_blocks(chain))
    if any(_JUMP.search(one.body) for one in chain):
        return "".join(_blocks(chain))
    live = [one for one, value in zip(chain, values, strict=True) if value is not False]
    if True in values:
        last = chain[values.index(True)]
        live = [*live[: live.index(last)], _Branch(None, last.body)]
    return "".join(_blocks(live))


def _blocks(chain: list[_Branch]) -> Iterator[str]:
    for number, one in enumerate(chain):
        yield " else " if number else ""
        yield f"{{{one.body}}}" if one.condition is None else f"if ({one.condition}) {{{one.body}}}"
