"""The one place that imports matplotlib: figures that are drawn into files, never on a screen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

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


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the form that its name says, in one step."""
    out = io.BytesIO()
    figure.savefig(out, format=path.suffix[1:], dpi=120)
    write_atomic(path, out.getvalue())
    return path
