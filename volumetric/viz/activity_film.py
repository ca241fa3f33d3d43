"""Films of recorded activity as GIFs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.observe.recording import Recording
from volumetric.observe.scene import Scene
from volumetric.viz.gif import gif

COLOURS: Final = (
    (255, 210, 122), (122, 205, 255), (150, 230, 140), (255, 150, 200), (190, 165, 255), (255, 160, 100),
    (110, 225, 200), (225, 225, 225),
)  # fmt: skip
"""Colours of groups at the top of their scales; with more groups they repeat."""
FROM, ODD_COLOUR, GROUND = (26, 26, 36), (194, 24, 91), (17, 17, 17)
_FEW: Final = 40
"""Maximum number of nodes that get large cells."""
TOP, ODD = 254, 255
"""Codes of a node at the top of its scale, and of one whose output is not finite; 0 is the bottom."""
_SHADES, _MIXED = 62, 254
"""Number of colours of a group, and of all groups together, in a GIF."""
_FRAMES_A_SECOND, _SHORTEST = 25.0, 2.0
"""Default frames per second of a film, and its minimum duration in seconds at that default."""
_ONE_LINE: Final = 12
"""Maximum number of columns with all panels in one line."""
_LARGEST: Final = 480  # approximate pixels of a GIF's longer side


def save_film(recording: Recording, path: str | Path, *, rate: float | None = None, frames: int = 500) -> None:
    """Write a film atomically. It loops.

    Cells are at the places of the nodes, with a panel for each depth. Each group has its own colour and scale, see
    `levels_of`. Brightness is the square root of a value's fraction of the scale, so that weak values are visible.

    Parameters
    ----------
    path : ends in ``.gif``; or in ``.html``, for the page of `Recording.scope`, which has no `rate` and `frames`
    rate : frames per second; None: 25, or fewer if the film would be shorter than two seconds
    frames : maximum number of frames of a GIF; if there are more, every n-th is drawn

    Raises
    ------
    UnsupportedError : `path` has another suffix
    CheckpointError : the file cannot be written
    SpecError : `rate` or `frames` is too small
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".html", ".htm", ".gif"):
        raise UnsupportedError(f"cannot write a film to {path.name!r}", hint="name the file with .html or .gif")
    if rate is None:
        rate = film_rate(recording)
    elif rate < 1:
        raise SpecError(f"a film needs a rate of 1 or more, got {rate}")
    if frames < 1:
        raise SpecError(f"a film needs frames of 1 or more, got {frames}")
    if suffix == ".gif":
        write_atomic(path, film_gif(recording, rate=rate, frames=frames))
    else:
        recording.scope().save(path)


def film_rate(recording: Recording) -> float:
    """Return the default frames per second: 25, or fewer if the film would be shorter than two seconds."""
    return min(_FRAMES_A_SECOND, max(len(recording), 1) / _SHORTEST)


def places_of(scene: Scene) -> list[tuple[int, int]]:
    """Return the column and line of each node: one panel per depth, in lines that make the picture about square.

    If nodes are not on a grid, a panel has enough places for most nodes to have their own.
    """
    at = np.array([node.at for node in scene.nodes], np.float64).reshape(len(scene.nodes), 3)
    column, line, depth = (_ranks(at[:, i], len(at)) for i in range(3))
    wide, high = int(column.max(initial=0)) + 2, int(line.max(initial=0)) + 2
    panels = int(depth.max(initial=0)) + 1
    across = panels if panels * wide <= _ONE_LINE else max(1, min(panels, round((panels * high / wide) ** 0.5)))
    return [
        (int(depth[i] % across * wide + column[i]), int(depth[i] // across * high + line[i])) for i in range(len(at))
    ]


def _ranks(x: Array, count: int) -> Array:
    """Return integer places along an axis: ranks if there are few values, else evenly spaced bins."""
    values, order = np.unique(x, return_inverse=True)
    most = max(1, 2 * int(np.ceil(count**0.5)))
    if len(values) <= max(most, 32):
        return order.reshape(-1)
    return np.rint((x - values[0]) / (values[-1] - values[0]) * most).astype(np.int64)


def levels_of(recording: Recording) -> Array:
    """Return the range of values of each group's brightness, ``[groups, 2]``.

    It is 0 to the largest value of the group. If nine tenths of the values are above half of that, it starts at their
    10 % quantile, because a group of almost constant strength would always be bright.
    """
    values, groups = recording.values().astype(np.float64), np.array(recording.scene.group_of, np.int64)
    levels = np.zeros((len(recording.scene.groups), 2))
    for group in range(len(levels)):
        own = values[:, groups == group]
        own = own[np.isfinite(own) & ~recording.odd[:, groups == group]]
        high = float(own.max(initial=0.0))
        low = float(np.quantile(own, 0.1)) if own.size else 0.0
        levels[group] = low if high / 2 < low < 0.999 * high else 0.0, high or 1.0
    return levels


def codes_of(recording: Recording, levels: Array) -> Array:
    """Return a byte for each value, ``[frames, nodes]``: 0 … 254 within the levels of its group, 255 if not finite."""
    low, high = levels[np.array(recording.scene.group_of, np.int64)].reshape(-1, 2).T
    part = np.clip((recording.values().astype(np.float64) - low) / (high - low), 0.0, 1.0)
    return np.where(recording.odd, ODD, np.rint(TOP * np.nan_to_num(part))).astype(np.uint8)


def film_gif(recording: Recording, *, rate: float, frames: int) -> bytes:
    """Return an animated GIF; its speed corresponds to `rate` frames per second even if frames are skipped."""
    scene = recording.scene
    places = np.array(places_of(scene), np.int64).reshape(-1, 2)
    wide, high = places.max(0, initial=0) + 1
    side = int(
        max(2, min(72 if scene.kind == "program" or len(places) <= _FEW else 24, _LARGEST // max(wide, high, 1)))
    )
    every = max(1, -(-len(recording) // frames))
    some = recording.select(slice(None, None, every))
    codes = codes_of(some, levels_of(some))
    groups = np.array(scene.group_of, np.int64) % len(COLOURS)
    ramps = max(1, int(groups.max(initial=0)) + 1)
    steps = min(_SHADES, _MIXED // ramps)
    shades = 1 + groups * steps + np.rint((steps - 1) * np.sqrt(codes / TOP)).astype(np.int64)
    shades = np.where(codes == ODD, 1 + ramps * steps, shades)
    canvas = np.zeros((max(len(codes), 1), high * side, wide * side), np.uint8)
    for i, (column, line) in enumerate(places.tolist()):
        spot = canvas[:, line * side : (line + 1) * side - 1, column * side : (column + 1) * side - 1]
        spot[:] = 1 if not len(codes) else shades[:, i, None, None]
    mixed = [
        tuple(round(a + (b - a) * i / (steps - 1)) for a, b in zip(FROM, to, strict=True))
        for to in COLOURS[:ramps]
        for i in range(steps)
    ]
    return gif(canvas, [GROUND, *mixed, ODD_COLOUR], seconds=math.ceil(100 * every / rate - 1e-6) / 100)
