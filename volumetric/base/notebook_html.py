"""HTML by which values show themselves in notebooks: tables of names and values, pictures, and pages in frames.

Text is escaped. Colours are those of the notebook's theme. Nothing has a script, but the pages in frames, which the
browser shuts off from the notebook.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from volumetric.base.registry import Registry

PICTURES: Final[Registry[Callable[[Any], str]]] = Registry(group="volumetric.pictures")
"""Kind of value → what draws it, as an SVG or HTML text. The package's own ones are in `volumetric.viz`."""
LEFT: Final = "text-align:left"
_MOST_CHARACTERS: Final = 400
"""Maximum length of a value in a table."""


def picture_of(kind: str, value: Any) -> str:
    """Return the picture of a value, as `PICTURES` draws it; an empty text where Matplotlib is missing."""
    from volumetric.base.errors import UnsupportedError

    try:
        return PICTURES[kind](value)
    except (UnsupportedError, KeyError):
        return ""


def drawn_bundle(kind: str, value: Any) -> dict[str, str]:
    """Return the text of a value and its drawing, by MIME type, as notebooks ask for them."""
    drawing = picture_of(kind, value)
    return {"text/plain": repr(value)} | ({"image/svg+xml": drawing} if drawing else {})


def facts_table(rows: Iterable[tuple[str, str]], *, title: str = "", pictures: Mapping[str, str] | None = None) -> str:
    """Return a table of names and values.

    Parameters
    ----------
    rows : names and values, as plain text
    title : line above, as plain text
    pictures : further rows, whose values are SVG or HTML
    """
    cells = [(name, f'<span style="white-space:pre-wrap">{_escape(value)}</span>') for name, value in rows]
    body = "".join(
        f'<tr><th style="{LEFT};vertical-align:top">{_escape(name)}</th><td style="{LEFT}">{value}</td></tr>'
        for name, value in (*cells, *(pictures or {}).items())
        if value
    )
    caption = f'<caption style="{LEFT};font-weight:bold">{_escape(title)}</caption>' if title else ""
    return f"<table>{caption}<tbody>{body}</tbody></table>"


def image_of(svg: str, name: str) -> str:
    """Return an SVG drawing as an image of its own, whose styles do not reach the page; "" stays ""."""
    if not svg:
        return ""
    import base64

    data = base64.b64encode(svg.encode()).decode()
    style = "max-width:100%;background:#fff;border-radius:6px"
    return f'<img alt="{_escape(name)}" style="{style}" src="data:image/svg+xml;base64,{data}">'


def framed_page(page: str, *, title: str, height: int) -> str:
    """Return a whole page in a frame: its script runs without access to the notebook, and loads nothing."""
    return (
        f'<iframe title="{_escape(title)}" sandbox="allow-scripts" srcdoc="{_escape(page)}" '
        f'style="width:100%;height:{height}px;border:0;border-radius:6px"></iframe>'
    )


def text_page(text: str, note: str = "") -> str:
    """Return a text with its lines as they are, and a paler note below."""
    below = f'<div style="font-size:.85em;opacity:.65;margin-top:4px">{_escape(note)}</div>' if note else ""
    return f'<div style="white-space:pre-wrap;max-width:80ch">{_escape(text)}</div>{below}'


class ShowsFields:
    """A dataclass that shows its fields as a table in notebooks, without those that have their default value."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        of: Any = self
        shown = [field for field in dataclasses.fields(of) if field.repr and not field.name.startswith("_")]
        values = [(field, getattr(self, field.name)) for field in shown]
        rows = [(field.name.replace("_", " "), show_value(value)) for field, value in values if value != field.default]
        return facts_table([row for row in rows if row[1]], title=type(self).__name__)


def show_value(value: Any) -> str:
    """Return a value as a text of a table: numbers in a few digits, collections by their items."""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if value is None:
        return ""
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}: {show_value(of)}" for key, of in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        text = ", ".join(map(show_value, value))
    else:
        text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"


def _escape(text: str) -> str:
    from html import escape

    return escape(text)
