"""Boxes side by side on shelves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from volumetric.errors import SpecError

Sides = tuple[int, ...]
Box = tuple[tuple[int, int], ...]
ENDLESS = 2**62


def packed(sides: Mapping[str, Sides], shape: Sides) -> dict[str, Box]:
    """Return a place for each box, in their order: along the last axis, then in rows, and these in layers.

    A row is as deep as its deepest box; a box for which there is no room begins the next.

    Raises
    ------
    SpecError : the shape is too small; the message says what would do
    """
    for name, of in sides.items():
        for axis, (side, room) in enumerate(zip(of, shape, strict=True)):
            if side > room:
                raise SpecError(
                    f"field {name!r} is {_by(of)}, and the canvas {_by(shape)}: axis {axis} has no room for it",
                    hint=f"shape={shape_for(sides)} takes all fields",
                )
    found = _shelved(sides, (ENDLESS, *shape[1:]))
    needed = max(box[0][1] for box in found.values())
    if needed > shape[0]:
        raise SpecError(
            f"fields need a canvas of {_by((needed, *shape[1:]))}, this one is {_by(shape)}",
            hint=f"shape={(needed, *shape[1:])}, or none: then it is as large as needed",
        )
    return found


def shape_for(sides: Mapping[str, Sides]) -> Sides:
    """Return a shape, about as long as wide, on which boxes have room."""
    axes = len(next(iter(sides.values())))
    total = sum(math.prod(of) for of in sides.values())
    side = math.ceil(total ** (1 / axes) - 1e-9)
    widest = [max(of[axis] for of in sides.values()) for axis in range(axes)]
    rest = tuple(max(side, most) for most in widest[1:])
    return (max(box[0][1] for box in _shelved(sides, (ENDLESS, *rest)).values()), *rest)


def _shelved(sides: Mapping[str, Sides], shape: Sides) -> dict[str, Box]:
    axes = len(shape)
    at, deep = [0] * axes, [0] * axes
    found: dict[str, Box] = {}
    for name, of in sides.items():
        for axis in range(axes - 1, 0, -1):
            if at[axis] + of[axis] > shape[axis]:  # the next row begins, or layer, …
                at[axis:] = [0] * (axes - axis)
                at[axis - 1] += deep[axis - 1]
                deep[axis - 1 :] = [0] * (axes - axis + 1)
        found[name] = tuple((low, low + side) for low, side in zip(at, of, strict=True))
        deep = [max(most, side) for most, side in zip(deep, of, strict=True)]
        at[-1] += of[-1]
    return found


def _by(sides: Sides) -> str:
    return "×".join(map(str, sides))
