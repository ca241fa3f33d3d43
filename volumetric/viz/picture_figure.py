"""Matplotlib's figure as a value that shows itself in notebooks, without pyplot and without a window."""

from __future__ import annotations

import base64
import io
from typing import Final

from matplotlib.figure import Figure

from volumetric.viz.figure import figure_svg

_LARGEST_SVG: Final = 120_000
"""Maximum characters of an SVG drawing in a notebook; a larger one becomes a PNG picture."""


class PictureFigure(Figure):
    """A figure that notebooks show: as an SVG drawing, or as a PNG picture if the drawing would be large."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the figure for notebooks, and its size as text."""
        width, height = self.get_size_inches()
        bundle = {"text/plain": f"<Figure of {width:.1f} × {height:.1f} inches>"}
        drawing = figure_svg(self)
        if len(drawing) <= _LARGEST_SVG:
            return bundle | {"image/svg+xml": drawing}
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=110)
        return bundle | {"image/png": base64.b64encode(out.getvalue()).decode()}
