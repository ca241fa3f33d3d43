"""The map of a film: which class a network names for every point of the plane, and how sure it is."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from typing import Final

import numpy as np

from scripts.learning_film import COLOUR_NAMES, LearningFilm, digits
from volumetric.base._typing import Array

_LEFT, _TOP, _SIDE = 486.0, 44.0, 300.0
_COLOURS: Final = ((245, 158, 11), (20, 170, 200), (210, 70, 225))
_SHADES: Final = 10
_MOST_DOTS: Final = 70
"""Number of points of each class that are drawn."""


def place_on_plane(film: LearningFilm, point: Iterable[float]) -> tuple[float, float]:
    """Return where a point of the plane is in the picture."""
    x, y = point
    return _LEFT + _SIDE * (x / film.reach + 1) / 2, _TOP + _SIDE * (1 - y / film.reach) / 2


def draw_plane(film: LearningFilm) -> str:
    """Return the maps, one above the other, the points and the marked one as SVG."""
    square = f'x="{digits(_LEFT)}" y="{digits(_TOP)}" width="{digits(_SIDE)}" height="{digits(_SIDE)}"'
    out = [f'<clipPath id="plane"><rect {square} rx="8"/></clipPath><g clip-path="url(#plane)">']
    for i, moment in enumerate(film.learning):
        rest = "animation-name:trained" if moment is film.learning[-1] else "opacity:0"
        image = base64.b64encode(plane_png(moment.plane)).decode()
        out.append(
            f'<image class="map" style="{film.starts_at(i)};{rest}" {square} href="data:image/png;base64,{image}"/>'
        )
    out.append(f'</g><rect {square} rx="8" fill="none" stroke="var(--rim)"/>')
    for i, name in enumerate(COLOUR_NAMES[: int(film.classes.max()) + 1]):
        places = [place_on_plane(film, point) for point in film.points[film.classes == i][:_MOST_DOTS]]
        dots = "".join(f"M{digits(x)} {digits(y)}h0" for x, y in places)
        out.append(f'<path class="rim" d="{dots}"/><path class="dot" stroke="var(--{name})" d="{dots}"/>')
    x, y = place_on_plane(film, film.moments[-1].probe)
    out.append(
        f'<g id="spot" style="transform:translate({digits(x)}px,{digits(y)}px)">'
        f'<g class="hue" style="{film.moments[-1].hue}"><circle r="9" fill="var(--card)" stroke="var(--ink)" '
        'stroke-width="2"/><circle fill="currentColor" r="5.5"/></g></g>'
        f'<text x="{digits(_LEFT + _SIDE / 2)}" y="376" text-anchor="middle">'
        "the arm that it names for every point</text>"
    )
    return "".join(out)


def plane_png(plane: Array) -> bytes:
    """Return as PNG the likeliest class of probabilities ``[side, side, classes]``, strong where it is certain."""
    height, width, classes = plane.shape
    certain = np.clip((plane.max(2) - 1 / classes) / (1 - 1 / classes), 0, 1)
    codes = (plane.argmax(2) * _SHADES + np.rint(certain * (_SHADES - 1))).astype(np.uint8)
    alpha = np.rint(255 * np.linspace(0.06, 0.52, _SHADES)).astype(np.uint8).tobytes()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(bytes(colour) * _SHADES for colour in _COLOURS[:classes])),
        (b"tRNS", alpha * classes),
        (b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in codes), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
