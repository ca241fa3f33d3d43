"""The grid of a film: a lamp for each cell, as bright as its layer is active, and the links between the cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np

from scripts.learning_film import LearningFilm, digits, keyframes
from volumetric.base._typing import Array
from volumetric.network import Coord, Network

Cell: TypeAlias = tuple[int, int, int]

TICK: Final = 0.08
"""Seconds by which a cell follows the cells that it reads."""
_MIDDLE, _WIDTH, _HEIGHT = (232.0, 192.0), 350.0, 290.0
_YAW, _PITCH, _STRETCH = np.radians(23), np.radians(24), 1.6
"""A view from which the cells of a small cube hide each other little, its depth stretched."""
_AXES: Final = np.array(
    [
        [np.cos(_YAW), -np.sin(_YAW) * np.sin(_PITCH)],
        [0.0, -np.cos(_PITCH)],
        [np.sin(_YAW), np.cos(_YAW) * np.sin(_PITCH)],
    ]
)
"""Directions of depth, rows and columns in the picture."""
_NEARER: Final = np.array([-_STRETCH * np.sin(_YAW) * np.cos(_PITCH), np.sin(_PITCH), np.cos(_YAW) * np.cos(_PITCH)])
"""How much a step along each of them comes towards the eye."""
_EDGE: Final = 0.37
_BRIGHTEST: Final = 0.85
"""Root mean square of the output of a cell at full light."""


def draw_cells(film: LearningFilm) -> str:
    """Return the grid as SVG, with the keyframes of its lamps."""
    grid = film.network.grid
    sides = (grid.depth, grid.rows, grid.cols)
    places, size = _places(sides)
    first, last = places[0, 0, 0], places[sides[0] - 1, sides[1] - 1, sides[2] - 1]
    frames: list[str] = []
    cells: list[str] = []
    for cell in sorted(places, key=lambda at: float(_NEARER @ at)):
        lights = [f"opacity:{digits(_light(moment.activity, cell))}" for moment in film.moments]
        frames.append(keyframes(f"c{len(frames)}", lights))
        x, y = places[cell]
        delay = f"animation-delay:{digits(sum(cell) * TICK)}s"
        cells.append(
            f'<g transform="translate({digits(x)} {digits(y)})"><use href="#box"/>'
            f'<g class="hue" style="{delay};{film.moments[-1].hue}"><use href="#lamp" class="lit" '
            f'style="{lights[-1]};{delay};animation-name:c{len(cells)}"/></g></g>'
        )
    left, right = _MIDDLE[0] - _WIDTH / 2, _MIDDLE[0] + _WIDTH / 2
    return (
        f"<style>{''.join(frames)}</style><defs>{_box_and_lamp(size)}</defs>"
        f'<path class="w" d="{_lines(film.network, places)}'
        f'M{digits(left - 34)} {digits(first[1])}H{digits(first[0])}"/>'
        f"{''.join(cells)}"
        f'<path class="w" d="M{digits(last[0] + size * 0.7)} {digits(last[1])}H{digits(right + 30)}"/>'
        f'<text x="{digits(left - 34)}" y="{digits(first[1] - 7)}">point</text>'
        f'<text x="{digits(right + 30)}" y="{digits(last[1] - 7)}" text-anchor="end">arm</text>'
        f'<text x="{digits(_MIDDLE[0])}" y="376" text-anchor="middle">{" × ".join(map(str, sides))} layers, '
        "lit by their activity for the marked point</text>"
    )


def _places(sides: Cell) -> tuple[dict[Cell, Array], float]:
    """Return where the middle of each cell is, and the length of a cell's edge."""
    stretch = np.array([_STRETCH, 1.0, 1.0])
    flat = {cell: (cell * stretch) @ _AXES for cell in np.ndindex(*sides)}
    low, high = np.min(list(flat.values()), 0), np.max(list(flat.values()), 0)
    pitch = float(np.min(np.array([_WIDTH, _HEIGHT]) / (high - low + 0.6)))
    return {cell: (place - (low + high) / 2) * pitch + _MIDDLE for cell, place in flat.items()}, pitch * _EDGE


def _light(activity: Mapping[Coord, float], cell: Cell) -> float:
    """Return how bright a cell is, 0 … 1; the ends that share the first and last place do not count."""
    slots = {coord.slot: value for coord, value in activity.items() if (coord.z, coord.y, coord.x) == cell}
    own = slots[1] if cell == (0, 0, 0) and len(slots) > 1 else slots[0]
    return min(1.0, (own / _BRIGHTEST) ** 1.3)


def _lines(network: Network, places: Mapping[Cell, Array]) -> str:
    ends = {((a.z, a.y, a.x), (b.z, b.y, b.x)) for a, b in ((link.source, link.target) for link in network.links)}
    return "".join(
        "M" + "L".join(f"{digits(places[cell][0])} {digits(places[cell][1])}" for cell in pair) for pair in sorted(ends)
    )


def _box_and_lamp(size: float) -> str:
    """Return what all cells use: a box in the dark, and its light with a halo."""
    z, y, x = _AXES * size / 2
    faces = {
        "top": (y - z - x, y + z - x, y + z + x, y - z + x),
        "front": (x + y - z, x + y + z, x - y + z, x - y - z),
        "side": (y - z - x, y - z + x, -y - z + x, -y - z - x),
    }
    paths = {
        name: "M" + "L".join(f"{digits(px)} {digits(py)}" for px, py in corners) + "z"
        for name, corners in faces.items()
    }
    box = "".join(f'<path class="{name}" d="{path}"/>' for name, path in paths.items())
    halo = "".join(f'<circle class="halo" r="{digits(size * part)}"/>' for part in (1.5, 1.35, 1.2, 1.05, 0.9, 0.75))
    light = "".join(f'<path d="{path}"/>' for path in paths.values())
    return (
        f'<g id="box">{box}</g><g id="lamp" fill="currentColor">{halo}{light}'
        f'<path fill="#fff" fill-opacity=".38" d="{paths["top"]}"/>'
        f'<path fill="#000" fill-opacity=".2" d="{paths["side"]}"/></g>'
    )
