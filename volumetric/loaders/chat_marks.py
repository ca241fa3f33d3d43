"""Marks: characters that stand for others in what a chat template is given, so that what came of data can be told.

They are halves of surrogate pairs, which no text holds: a mark cannot be forged.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from volumetric.errors import GenerationError

FIRST: Final = 0xDC00
"""Mark of the character 0; those of ASCII follow in its order."""
OTHERS: Final = FIRST + 128
"""First mark of characters beyond ASCII, which whoever marks them numbers."""
MOST_OTHERS: Final = 512
END: Final = "\udfff"
"""Stands for no character: where a message ends that is to go on."""
MARKED: Final = re.compile(f"[{chr(FIRST)}-{chr(OTHERS + MOST_OTHERS - 1)}]")
_HALF: Final = re.compile("[\ud800-\udfff]")
_ASCII: Final = {FIRST + code: chr(code) for code in range(128)}
_IN_JSON: Final = {FIRST + code: json.dumps(chr(code))[1:-1] for code in (*range(32), ord('"'), ord("\\"))}
_IN_HTML: Final = {
    FIRST + ord(char): text
    for char, text in {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"}.items()
}
_NUMBERED: Final = re.compile(r"\\\\|\\u(d[c-f][0-9a-f]{2})")
_ESCAPED: Final = re.compile(f"[^\x00-\x7e{chr(FIRST)}-{END}]")


def mark_of(char: str) -> str:
    """Return the mark of a character of ASCII."""
    return chr(FIRST + ord(char))


def unmarked(text: str) -> str:
    """Return a text with the characters of ASCII that its marks stand for."""
    return text.translate(_ASCII) if MARKED.search(text) else text


def readable(text: str) -> str:
    """Return a text for a message, which can be encoded whatever is in it."""
    return _HALF.sub("\ufffd", unmarked(text))


def in_json(text: str, *, ascii_only: bool) -> str:
    """Return JSON that was written with marks as it would be without; those are in it still that JSON does not escape.

    Parameters
    ----------
    ascii_only : write characters beyond ASCII as escapes
    """
    if ascii_only:
        text = _ESCAPED.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text.translate(_IN_JSON) if MARKED.search(text) else text


def in_html(text: Any) -> Any:
    """Return a text that was escaped for HTML as if there had been no marks in it."""
    return type(text)(str(text).translate(_IN_HTML)) if isinstance(text, str) and MARKED.search(text) else text


class MarkedDict(dict[Any, Any]):
    """A dictionary whose text shows marks as they are, and not by their numbers."""

    def __repr__(self) -> str:
        return shown(super().__repr__())


class MarkedList(list[Any]):
    """A list whose text shows marks as they are, and not by their numbers."""

    def __repr__(self) -> str:
        return shown(super().__repr__())


def shown(text: str) -> str:
    """Return what `repr` wrote, with marks as they are in the place of their numbers."""
    return _NUMBERED.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[0], text)


def check_halves(text: str) -> None:
    """Raise `GenerationError` for a text that no encoding has."""
    if found := _HALF.search(text):
        raise GenerationError(
            f"the text holds {found[0]!a}, half of a surrogate pair", hint="decode the text from bytes as UTF-8"
        )
