"""Texts with call numbers: their matching, also of incomplete texts, and their grammar."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

NUMBER: Final = "\0"
"""Stands for a number in a text of a form."""
GRAMMAR: Final = "/[0-9]{1,4}/"
"""A number in llguidance's Lark."""


def with_number(text: str, number: int) -> str:
    """Return a text with a number filled in."""
    return text.replace(NUMBER, str(number))


@cache
def number_pattern(text: str) -> re.Pattern[str]:
    """Return the regular expression of a text; its first group is the number, if there is one."""
    return re.compile("([0-9]+)".join(map(re.escape, text.split(NUMBER))))


@cache
def beginning_pattern(text: str) -> re.Pattern[str]:
    """Return the regular expression of all prefixes of a text, itself included."""
    expression = ""
    for char in reversed(text):
        expression = f"(?:{'[0-9]+' if char == NUMBER else re.escape(char)}{expression})?"
    return re.compile(expression)
