"""Heat maps of a table of numbers, as a web page that needs nothing else, or as a picture through matplotlib."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from volumetric.atomic import write_atomic
from volumetric.errors import UnsupportedError
from volumetric.viz.figure import new_figure

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """A table of numbers in -1 … 1 with names; NaN marks a cell that has none.

    Attributes
    ----------
    values : float ``[rows, columns]``
    rows, columns : their names
    title : what is shown
    """

    values: NDArray[np.float64]
    rows: Sequence[str]
    columns: Sequence[str]
    title: str

    def save(self, path: str | Path) -> None:
        """Write the map to `path`: ``.html`` is a page of its own, ``.png``, ``.svg`` and ``.pdf`` need matplotlib.

        Raises
        ------
        UnsupportedError
            The suffix is none of these, or matplotlib is missing.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix in (".html", ".htm"):
            write_atomic(path, self.html().encode())
        elif suffix in PICTURES:
            write_atomic(path, self._picture(suffix[1:]))
        else:
            known = ", ".join((".html", *PICTURES))
            raise UnsupportedError(f"cannot draw to {path.name!r}", hint=f"name the file with one of {known}")

    def html(self) -> str:
        """Return the page: a table whose cells are coloured, with every number as a tooltip."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>{''.join(map(_cell, row))}</tr>\n"
            for name, row in zip(self.rows, self.values, strict=True)
        )
        title = html.escape(self.title)
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n<style>{_STYLE}</style>\n'
            f"<h1>{title}</h1>\n<table><tr><th></th>{head}</tr>\n{body}</table>\n</html>\n"
        )

    def _picture(self, form: str) -> bytes:
        height, width = self.values.shape
        figure = new_figure(width=4.0 + 0.3 * width, height=1.5 + 0.22 * height)
        axes = figure.add_subplot()
        image = axes.imshow(self.values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_xticks(range(width), self.columns, rotation=90, fontsize=7)
        axes.set_yticks(range(height), self.rows, fontsize=7)
        figure.suptitle(self.title, fontsize=9, wrap=True)
        figure.colorbar(image, ax=axes)
        out = io.BytesIO()
        figure.savefig(out, format=form, dpi=120)
        return out.getvalue()


_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "th{font-weight:normal;font-size:12px;padding:2px 6px;text-align:left;white-space:nowrap}"
    "td{width:2.6em;height:1.6em;font-size:11px;text-align:center;border:1px solid #fff}"
)
_MIDDLE, _LOW, _HIGH = (np.array(c, np.float64) for c in ((247, 247, 247), (178, 24, 43), (33, 102, 172)))


def _cell(value: float) -> str:
    """Return one cell, red below 0 and blue above."""
    if np.isnan(value):
        return "<td></td>"
    strength = min(abs(float(value)), 1.0)
    red, green, blue = (_MIDDLE + strength * ((_HIGH if value > 0 else _LOW) - _MIDDLE)).round().astype(int)
    ink = "#fff" if strength > 0.6 else "#222"
    return f'<td style="background:rgb({red},{green},{blue});color:{ink}" title="{value:.6f}">{value:.2f}</td>'
