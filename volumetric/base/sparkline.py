"""A row of numbers as a line of characters, or as a small SVG picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return at most `width` characters, higher for larger values; numbers that are not finite are spaces.

    Values above 0 that span more than two decades are drawn by their logarithm.
    """
    levels = _levels(_thinned(values, width))
    return "".join(" " if level is None else _BARS[min(int(level * len(_BARS)), len(_BARS) - 1)] for level in levels)


def sparkline_svg(values: Sequence[float], width: int = 240, height: int = 48) -> str:
    """Return the curve of `values` as an SVG element, scaled as by `sparkline`."""
    levels = _levels(_thinned(values, width))
    step = width / max(1, len(levels) - 1)
    points = " ".join(
        f"{i * step:.1f},{2 + (1 - level) * (height - 4):.1f}" for i, level in enumerate(levels) if level is not None
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )


def _thinned(values: Sequence[float], most: int) -> list[float]:
    """Return at most `most` of the values, the first and the last among them."""
    if len(values) <= most:
        return [float(value) for value in values]
    return [float(values[round(i * (len(values) - 1) / (most - 1))]) for i in range(most)]


def _levels(values: Sequence[float]) -> list[float | None]:
    """Return values scaled to 0 … 1."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return [None] * len(values)
    wide = min(finite) > 0 and max(finite) / min(finite) > 100
    scale = math.log if wide else float
    low, high = scale(min(finite)), scale(max(finite))
    span = (high - low) or 1.0
    return [(scale(value) - low) / span if math.isfinite(value) else None for value in values]
