"""The one place that imports matplotlib: figures that are drawn into files, never on a screen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volumetric.atomic import write_atomic
from volumetric.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(*, width: float, height: float) -> Figure:
    """Return an empty figure of `width` × `height` inches, at most 60 each, that no window shows.

    Raises
    ------
    UnsupportedError
        Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed", hint="pip install 'volumetric-engine[viz]'"
        ) from None
    return Figure(figsize=(min(width, 60.0), min(height, 60.0)), layout="constrained")


def keep_layout(figure: Figure) -> None:
    """Lay out the axes, titles and legends that a figure has so far, and leave them there, whatever is added.

    For axes with thousands of things inside that limits and legends do not depend on: laying a figure out looks at all
    of them several times, which took longer than drawing them.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine(None)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the form that its name says, in one step."""
    out = io.BytesIO()
    form = path.suffix[1:]
    # Of lines on flat grounds the first level of PNG takes half of the time, and about as many bytes.
    few: dict[str, Any] = {"pil_kwargs": {"compress_level": 1}} if form == "png" else {}
    figure.savefig(out, format=form, dpi=120, **few)
    write_atomic(path, out.getvalue())
    return path
