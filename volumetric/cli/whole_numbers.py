"""Whole numbers of the command line: a fraction is refused, where the parser would round it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final, get_args

import cyclopts
from cyclopts.argument import ArgumentCollection

_DIGITS: Final = 15
"""Digits that a float holds exactly, whatever they are."""


def refuse_fractions(app: cyclopts.App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Check the whole numbers that have a point; cyclopts calls it before it converts the values of a command line.

    As cyclopts documents, it would round them: 2.7 would be 3. Here only zeros may follow the point, as in ``2.0``, and
    at most 15 digits precede it. All else stays as cyclopts documents: ``1_000``, ``0x3e8`` and ``0b11`` are whole
    numbers, ``1e3`` is none. cyclopts traverses lists, mappings and unions, so this holds wherever it converts to int.

    Raises
    ------
    CoercionError : the value of a whole number is a fraction
    """
    for argument in arguments:
        if argument.children or argument.parameter.converter or not _takes_int(argument.hint):
            continue
        if any("." in token.value for token in argument.tokens):
            fractions: list[str] = []
            with suppress(cyclopts.CycloptsError):  # errors come again when cyclopts converts, in its order
                argument.convert(converter=partial(_convert, fractions=fractions))
            for fraction in fractions[:1]:
                place = next((token for token in argument.tokens if token.value == fraction), argument.tokens[0])
                token = place.evolve(value=fraction)  # a list in JSON is one token
                raise cyclopts.CoercionError(argument=argument, token=token, target_type=int)


def _takes_int(hint: Any) -> bool:
    """Whether a type is int, or contains it or a literal of it."""
    return hint is int or isinstance(hint, int) or any(map(_takes_int, get_args(hint)))


def _convert(hint: Any, tokens: Any, fractions: list[str]) -> Any:
    """Convert as cyclopts does, and collect the fractions that it would convert to int."""

    def leaf(kind: type, text: str) -> Any:
        if kind is int and "." in text:
            whole, _, rest = text.strip().partition(".")
            if rest.strip("0") or sum(map(str.isdigit, whole)) > _DIGITS:
                fractions.append(text)
        return cyclopts.convert(kind, [text])

    return cyclopts.convert(hint, tokens, converter=leaf)
