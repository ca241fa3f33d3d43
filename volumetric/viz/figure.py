"""Figures for files and notebooks, without a screen."""

from __future__ import annotations

import io
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_WIDEST: Final = 620.0
"""Points of the widest drawing in a notebook."""


def new_figure(*, width: float, height: float) -> Figure:
    """Return an empty figure of `width` × `height` inches, at most 60 each, without a window; notebooks show it.

    Raises
    ------
    UnsupportedError
        Matplotlib is not installed.
    """
    try:
        from volumetric.viz.picture_figure import PictureFigure
    except ImportError:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed", hint="pip install 'volumetric-engine[viz]'"
        ) from None
    return PictureFigure(figsize=(min(width, 60.0), min(height, 60.0)), layout="constrained")


def figure_svg(figure: Figure) -> str:
    """Return a figure as an SVG element; its text is text, not outlines, and equal figures have equal texts."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "volumetric"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return _fit_to_page(text[text.index("<svg") :], *(72 * side for side in figure.get_size_inches()))


def _fit_to_page(svg: str, width: float, height: float) -> str:
    """Scale a drawing that is wider than a notebook: images of SVG are not scaled by every notebook."""
    scale = min(1.0, _WIDEST / width)
    root, rest = svg.split(">", 1)
    for side, size in (("width", width), ("height", height)):
        root = re.sub(rf' {side}="[\d.]+pt"', f' {side}="{size * scale:.1f}pt"', root, count=1)
    return f"{root}>{rest}"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width in inches of a line of text of `size` points in the standard font, without kerning."""
    return sum(_advance(letter, bold) for letter in text) * size / 72


@lru_cache(1024)
def _advance(letter: str, bold: bool) -> float:
    """Return the advance width of a letter, in units of the font size."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(weight="bold" if bold else "normal", size=100)
    double, _, _ = text_to_path.get_text_width_height_descent(letter * 2, font, ismath=False)
    once, _, _ = text_to_path.get_text_width_height_descent(letter, font, ismath=False)
    return (double - once) / 100


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure atomically, in the format of its suffix."""
    out = io.BytesIO()
    form = path.suffix[1:].lower()
    # For lines on flat backgrounds, PNG level 1 takes half of the time, for about as many bytes.
    few: dict[str, Any] = {"pil_kwargs": {"compress_level": 1}} if form == "png" else {}
    figure.savefig(out, format=form, dpi=120, **few)
    write_atomic(path, out.getvalue())
    return path
