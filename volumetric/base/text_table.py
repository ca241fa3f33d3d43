"""Aligned tables as text, for ``print``, and as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_GAP = "  "
_MOST, _HEAD, _TAIL = 40, 24, 12
"""A table with more than `_MOST` rows shows the first `_HEAD` and the last `_TAIL`."""
_CELL, _NOTE = "white-space:nowrap;font-variant-numeric:tabular-nums", "font-size:.9em;opacity:.7"
_TITLE = "font-weight:bold;white-space:nowrap"
"""Styles of HTML: colours stay those of the notebook's theme."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table with lines above and below. ``str`` is its text; notebooks show its HTML.

    Attributes
    ----------
    title : line above
    columns : names of the columns
    rows : cells of each row; long tables are abbreviated in the middle
    right : names of right-aligned columns
    notes : lines below
    """

    title: str = ""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = [self.columns, *self._visible_rows()]
        widths = [max(len(cell) for cell in column) for column in zip(*shown, strict=True)]
        lines = [self.title] * bool(self.title)
        for cells in shown:
            padded = [
                cell.rjust(width) if name in self.right else cell.ljust(width)
                for cell, width, name in zip(cells, widths, self.columns, strict=True)
            ]
            lines.append(_GAP.join(padded).rstrip())
        lines.insert(bool(self.title) + 1, "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the table for notebooks: no script, all text escaped."""

        def row(cells: Sequence[str], tag: str) -> str:
            return "".join(
                f'<{tag} style="text-align:{"right" if name in self.right else "left"};{_CELL}">{escape(cell)}</{tag}>'
                for name, cell in zip(self.columns, cells, strict=True)
            )

        body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in self._visible_rows())
        caption = f'<caption style="text-align:left;{_TITLE}">{escape(self.title)}</caption>' if self.title else ""
        notes = "".join(f'<div style="{_NOTE}">{escape(note)}</div>' for note in self.notes)
        return f"<table>{caption}<thead><tr>{row(self.columns, 'th')}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _visible_rows(self) -> Iterator[Sequence[str]]:
        if len(self.rows) <= _MOST:
            yield from self.rows
            return
        yield from self.rows[:_HEAD]
        yield (f"… {len(self.rows) - _HEAD - _TAIL} more", *[""] * (len(self.columns) - 1))
        yield from self.rows[-_TAIL:]
