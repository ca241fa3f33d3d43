"""Heat maps of a table of numbers, as a self-contained web page, or as a picture through matplotlib."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import UnsupportedError
from volumetric.viz.figure import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """A table of numbers in -1 … 1 with names; NaN marks an empty cell.

    Colours cover the range of the numbers, so that small differences are visible, or that of `scale`. If there are
    negative numbers, colours go from red over white, which is 0, to blue.

    Attributes
    ----------
    values : float ``[rows, columns]``
    rows, columns : names of rows and columns
    title : title of the map
    scale : numbers at the ends of the colours; None: the smallest and the largest number
    ticks : place → label along both axes of a picture; None: the names, or every n-th if there are many
    note : text below the map
    """

    values: NDArray[np.float64]
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    scale: tuple[float, float] | None = None
    ticks: Mapping[int, str] | None = None
    note: str = ""

    def save(self, path: str | Path) -> None:
        """Write the map to `path`: ``.html`` is self-contained; ``.png``, ``.svg`` and ``.pdf`` need matplotlib.

        Raises
        ------
        UnsupportedError
            The suffix is unknown, or matplotlib is missing.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix in (".html", ".htm"):
            write_atomic(path, self.html().encode())
        elif suffix in PICTURES:
            save_figure(self._picture(), path)
        else:
            known = ", ".join((".html", *PICTURES))
            raise UnsupportedError(f"cannot draw to {path.name!r}", hint=f"use one of the suffixes {known}")

    @property
    def limits(self) -> tuple[float, float]:
        """Numbers at the ends of the colours: `scale`, or the range of all cells (off the diagonal of a square map)."""
        return self._value_range if self.scale is None else self.scale

    @property
    def _value_range(self) -> tuple[float, float]:
        """Range of the numbers, symmetric around 0 if some are negative; never empty, even if all are equal."""
        others = self.values.astype(np.float64)
        if list(self.rows) == list(self.columns) and len(self.rows) > 1:
            others[np.diag_indices_from(others)] = np.nan
        finite = others[np.isfinite(others)]
        if not finite.size:
            return 0.0, 1.0
        low, high = float(finite.min()), float(finite.max())
        if low < 0:
            most = max(-low, high)
            return -most, most
        if high - low < _LEAST:  # equal numbers get the middle colour
            return low - _LEAST, high + _LEAST
        return low, high

    def _repr_html_(self) -> str:
        """Return the map for notebooks."""
        low, high = self.limits
        digits = _digits(*self._value_range)
        name = 'style="font-weight:normal;font-size:12px;padding:2px 6px;text-align:left;white-space:nowrap"'
        cell = "border:0;padding:0 4px;font-size:11px;text-align:center;min-width:2.6em;"
        head = "".join(f"<th {name}>{html.escape(column)}</th>" for column in self.columns)
        body = "".join(
            f"<tr><th {name}>{html.escape(row)}</th>"
            f"{''.join(_cell(value, low, high, digits, cell) for value in values)}</tr>"
            for row, values in zip(self.rows, self.values, strict=True)
        )
        caption = f'<caption style="text-align:left;font-weight:bold">{html.escape(self.title)}</caption>'
        bar = f"{_SCALE};background:linear-gradient(90deg,{_stops(low)})"
        scale = f'<div style="font-size:.9em">{low:.4g} <span style="{bar}"></span> {high:.4g}</div>'
        note = f'<div style="font-size:.9em;opacity:.7">{html.escape(self.note)}</div>' if self.note else ""
        return f"<table>{caption}<tr><th></th>{head}</tr>{body}</table>{scale}{note}"

    def html(self) -> str:
        """Return the page: a table with coloured cells, every number as a tooltip, and the scale."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        low, high = self.limits
        digits = _digits(*self._value_range)
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>{''.join(_cell(value, low, high, digits) for value in row)}</tr>\n"
            for name, row in zip(self.rows, self.values, strict=True)
        )
        title = html.escape(self.title)
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n<style>{_STYLE}</style>\n'
            f"<h1>{title}</h1>\n<table><tr><th></th>{head}</tr>\n{body}</table>\n"
            f'<p>{low:.4g} <span class="scale" style="background:linear-gradient(90deg,{_stops(low)})"></span> '
            f"{high:.4g}</p>\n{f'<p>{html.escape(self.note)}</p>' if self.note else ''}\n</html>\n"
        )

    def _ticks(self, names: Sequence[str]) -> Mapping[int, str]:
        """Return place → label, as many as there is room for."""
        if self.ticks is not None:
            return self.ticks
        every = -(-len(names) // _LABELS)
        return {place: names[place] for place in range(0, len(names), every)} if every else {}

    def _picture(self) -> Figure:
        """Draw the table with matplotlib: small tables with numbers, large ones as colours only."""
        height, width = self.values.shape
        low, high = self.limits
        numbers = width <= _NUMBERS
        fitted = min(0.22, _LARGEST / max(height, width))
        figure = new_figure(width=3.0 + (0.5 if numbers else fitted) * width, height=1.7 + fitted * height)
        axes = figure.add_subplot(facecolor="#dddddd")  # colour of empty cells
        from matplotlib.colors import LinearSegmentedColormap

        colours = LinearSegmentedColormap.from_list("values", [stop / 255 for stop in _colours(low)])
        image = axes.imshow(self.values, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        if numbers:
            digits = _digits(*self._value_range)
            for (row, column), value in np.ndenumerate(self.values):
                if np.isfinite(value):
                    ink = "white" if _is_dark(_colour(value, low, high)) else "#222222"
                    axes.text(column, row, f"{value:.{digits}f}", ha="center", va="center", fontsize=5.5, color=ink)
        for set_ticks, names, turned in ((axes.set_xticks, self.columns, 90), (axes.set_yticks, self.rows, 0)):
            places = self._ticks(names)
            set_ticks(list(places), list(places.values()), rotation=turned, fontsize=9)
        figure.suptitle(self.title, fontsize=11, wrap=True)
        if self.note:
            figure.supxlabel(self.note, fontsize=8, wrap=True)
        above = bool((self.values[np.isfinite(self.values)] > high).any())
        figure.colorbar(image, ax=axes, extend="max" if above else "neither", aspect=40)
        return figure


_SCALE = "display:inline-block;width:16em;height:1em;vertical-align:middle"
_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "th{font-weight:normal;font-size:12px;padding:2px 6px;text-align:left;white-space:nowrap}"
    "td{min-width:2.6em;height:1.6em;padding:0 3px;font-size:11px;text-align:center;border:1px solid #fff}"
    f".scale{{{_SCALE}}}"
)
_LEAST = 1e-9
"""Smallest range of numbers with different colours."""
_NUMBERS = 24
_LABELS, _LARGEST = 32, 7.0
"""Maximum number of labels along an axis, and inches of a map without numbers."""
"""Maximum number of columns of a picture with numbers."""
Colour = NDArray[np.float64]


def _shades(*colours: tuple[int, int, int]) -> tuple[Colour, ...]:
    return tuple(np.array(colour, np.float64) for colour in colours)


_SIGNED = _shades((178, 24, 43), (247, 247, 247), (33, 102, 172))
_RISING = _shades((255, 255, 217), (65, 182, 196), (8, 29, 88))


def _colours(low: float) -> tuple[Colour, ...]:
    """Return red, green and blue, 0 to 255, at the low end, in the middle and at the high end."""
    return _SIGNED if low < 0 else _RISING


def _colour(value: float, low: float, high: float) -> Colour:
    part = 2 * min(max((value - low) / (high - low), 0.0), 1.0)
    first, middle, last = _colours(low)
    return first + part * (middle - first) if part < 1 else middle + (part - 1) * (last - middle)


def _is_dark(colour: Colour) -> bool:
    return float(colour @ (0.299, 0.587, 0.114)) < 130


def _digits(low: float, high: float) -> int:
    """Return the number of decimals that distinguish numbers in a range."""
    return int(np.clip(np.ceil(1 - np.log10(max(high - low, 1e-4))), 2, 5))


def _stops(low: float) -> str:
    return ",".join(f"rgb({','.join(str(round(part)) for part in colour)})" for colour in _colours(low))


def _cell(value: float, low: float, high: float, digits: int, style: str = "") -> str:
    """Return the HTML of a cell."""
    if np.isnan(value):
        return f'<td style="{style}"></td>' if style else "<td></td>"
    colour = _colour(float(value), low, high)
    red, green, blue = colour.round().astype(int)
    ink = "#fff" if _is_dark(colour) else "#222"
    shown = f"{value:.{digits}f}"
    return f'<td style="{style}background:rgb({red},{green},{blue});color:{ink}" title="{value:.6f}">{shown}</td>'
