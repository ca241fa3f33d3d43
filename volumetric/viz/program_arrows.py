"""Arrows of a program's picture: the sides of boxes that they meet, their curves, and their labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from volumetric.program.layer.name_checks import RULES
from volumetric.program.layer.program_facts import Facts, Wire
from volumetric.viz.program_labels import Labels, Spot, edge_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RULES: Final = (
    "#1b4f9c", "#b3411b", "#2e7d32", "#7b1fa2", "#00796b", "#ad1457", "#5d4037", "#455a64",
    "#9e7700", "#3949ab", "#c62828", "#558b2f", "#00838f", "#8e24aa", "#6d4c41", "#37474f",
)  # fmt: skip
STYLES: Final = {"add": "-", "gate": (0, (4, 2)), "replace": "-"}
WIDTHS: Final = {"add": 1.0, "gate": 1.0, "replace": 2.2}
_REACH: Final = 1.2
"""Inches of the straight ends of a curve, so that long curves stay near the canvas."""
_HEAD: Final = 3.2 / 72, 1.6 / 72
"""Length and half width of an arrow head, in inches."""
_Points: TypeAlias = "list[tuple[float, float]]"


def rule_colour(rule: str) -> str:
    """Return the colour of a rule."""
    return _RULES[list(RULES).index(rule) % len(_RULES)] if rule in RULES else "#555555"


@dataclass(frozen=True)
class _Way:
    """An arrow: its edge, and the sides of the boxes where it starts and ends."""

    wire: Wire
    sides: tuple[str, str]


class Arrows:
    """Arrows of edges between boxes of regions; no two arrows share a point at a side.

    Parameters
    ----------
    spots : box of each region that is drawn
    occupied : boxes with text

    Attributes
    ----------
    labels : labels of the arrows
    """

    def __init__(self, facts: Facts, spots: Mapping[str, Spot], occupied: Iterable[Spot]) -> None:
        self.facts: Facts = facts
        self.spots: Mapping[str, Spot] = spots
        wires = [w for w in self.facts.wires if {w.edge.reads, w.edge.writes} <= self.spots.keys()]
        self.ways: list[_Way] = [
            _Way(wire, _sides(self.spots[wire.edge.reads], self.spots[wire.edge.writes]))
            for wire in wires
            if wire.reads != wire.writes
        ]
        places = self._places()
        self.curves: list[tuple[Wire, _Points]] = [
            (way.wire, _curve(places[i, 0], places[i, 1], way.sides)) for i, way in enumerate(self.ways)
        ]
        self.curves += self._loops([wire for wire in wires if wire.reads == wire.writes])
        self.labels: Labels = Labels()
        self.labels.reserve(occupied)
        self.labels.reserve(_end_box(points[end]) for _, points in self.curves for end in (0, -1))
        for i, (_, points) in enumerate(self.curves):
            self.labels.pass_by(i, (_middle(points, t / _STEPS) for t in range(_STEPS + 1)))
        for i, (wire, points) in enumerate(self.curves):
            text = edge_label(wire.edge)
            if text:
                self.labels.place(text, i, [_middle(points, t) for t in _ALONG], rule_colour(wire.rule))

    def draw(self, axes: Axes) -> None:
        """Draw all arrows, grouped by style; does not change the limits of the axes."""
        from matplotlib.collections import PathCollection, PolyCollection
        from matplotlib.lines import Line2D
        from matplotlib.path import Path

        alike: dict[tuple[tuple[str, Any], ...], list[_Points]] = {}
        for wire, points in self.curves:
            alike.setdefault(tuple(_style(wire).items()), []).append(points)
        for items, curves in alike.items():
            style = dict(items)
            heads = [_head(points, style["linewidth"]) for points in curves]
            paths = [
                Path([*points[:3], head[1]], [Path.MOVETO, *[Path.CURVE4] * 3])
                for points, head in zip(curves, heads, strict=True)
            ]
            begun = zip(*(points[0] for points in curves), strict=True)
            alike_in = {"edgecolors": style["color"], "linewidths": style["linewidth"], "alpha": style["alpha"]}
            axes.add_artist(
                PathCollection(
                    paths, facecolors="none", linestyles=[style["linestyle"]], capstyle="butt", zorder=4, **alike_in
                )
            )
            axes.add_artist(PolyCollection(heads, facecolors=style["color"], joinstyle="miter", zorder=4, **alike_in))
            axes.add_artist(
                Line2D(
                    *begun, marker="o", markersize=2.2, color=style["color"], alpha=style["alpha"], ls="none", zorder=4
                )
            )
        self.labels.draw(axes)

    def _places(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Return the start and end of each arrow, along the sides, ordered by their other ends."""
        by_side: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for i, way in enumerate(self.ways):
            for end, name in enumerate((way.wire.edge.reads, way.wire.edge.writes)):
                by_side.setdefault((name, way.sides[end]), []).append((i, end))
        places: dict[tuple[int, int], tuple[float, float]] = {}
        for (name, side), members in by_side.items():
            left, top, wide, high = self.spots[name]
            upright = side in ("left", "right")

            def other(member: tuple[int, int], upright: bool = upright) -> float:
                edge = self.ways[member[0]].wire.edge
                x, y, w, h = self.spots[edge.writes if member[1] == 0 else edge.reads]
                return y + h / 2 if upright else x + w / 2

            first, last = (0.4, 0.88) if upright else (0.3, 0.9)
            for n, member in enumerate(sorted(members, key=other)):
                part = first + (last - first) * (n + 0.5) / len(members)
                places[member] = (
                    (left + (0.0 if side == "left" else wide), top + part * high)
                    if upright
                    else (left + part * wide, top + (0.0 if side == "top" else high))
                )
        return places

    def _loops(self, wires: Sequence[Wire]) -> list[tuple[Wire, _Points]]:
        """Draw edges from a region to itself: nested around the lower right corner of its box."""
        counts, loops = Counter(wire.edge.writes for wire in wires), list[tuple[Wire, _Points]]()
        used = Counter[str]()
        for wire in wires:
            name = wire.edge.writes
            left, top, wide, high = self.spots[name]
            right, bottom = left + wide, top + high
            far = 0.09 + min(0.16, 0.55 * min(wide, high) / counts[name]) * used[name]
            reach = 0.16 + 0.5 * far
            used[name] += 1
            ends = (right, bottom - far), (right - far, bottom)
            loops.append((wire, [ends[0], (right + reach, bottom - far), (right - far, bottom + reach), ends[1]]))
        return loops


def _style(wire: Wire) -> dict[str, Any]:
    faint = not wire.shares.any() or not wire.weight or wire.rule == "none"
    return {
        "color": rule_colour(wire.rule), "linestyle": ":" if faint else STYLES[wire.write],
        "linewidth": WIDTHS[wire.write], "alpha": 0.55 if faint else 0.9,
    }  # fmt: skip


def _sides(a: Spot, b: Spot) -> tuple[str, str]:
    """Return the sides where an arrow leaves the first box and meets the second."""
    beside = a[1] < b[1] + b[3] and b[1] < a[1] + a[3]
    above = a[0] < b[0] + b[2] and b[0] < a[0] + a[2]
    right, down = a[0] + a[2] / 2 <= b[0] + b[2] / 2, a[1] + a[3] / 2 <= b[1] + b[3] / 2
    across = ("right", "left") if right else ("left", "right")
    along = ("bottom", "top") if down else ("top", "bottom")
    if beside and not above:
        return across
    if above and not beside:
        return along
    return (across[0], along[1]) if not above else across


def _end_box(point: tuple[float, float]) -> Spot:
    """Return the box that an end of an arrow occupies."""
    return point[0] - 0.05, point[1] - 0.05, 0.1, 0.1


_ALONG: Final = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.12, 0.88)
"""Positions of labels along an arrow, best first."""
_STEPS: Final = 24
"""Points of an arrow that labels avoid."""
_NORMAL: Final = {"left": (-1.0, 0.0), "right": (1.0, 0.0), "top": (0.0, -1.0), "bottom": (0.0, 1.0)}


def _curve(a: tuple[float, float], b: tuple[float, float], sides: tuple[str, str]) -> _Points:
    """Return points of a cubic curve that is perpendicular to the boxes at its ends."""
    reach = min(max(0.12, 0.42 * math.dist(a, b)), _REACH)
    (ax, ay), (bx, by) = (_NORMAL[side] for side in sides)
    return [a, (a[0] + reach * ax, a[1] + reach * ay), (b[0] + reach * bx, b[1] + reach * by), b]


def _head(points: _Points, line: float) -> _Points:
    """Return the corners of an arrow head, tip in the middle; drawn with the line's border, it ends at the box."""
    (x0, y0), (x, y) = points[-2:]
    far, (long, half) = math.dist((x0, y0), (x, y)), _HEAD
    ux, uy = (x - x0) / far, (y - y0) / far
    border = 0.5 * line / 72 * math.hypot(long, half) / half
    x, y = x - border * ux, y - border * uy
    back_x, back_y = x - long * ux, y - long * uy
    return [(back_x - half * uy, back_y + half * ux), (x, y), (back_x + half * uy, back_y - half * ux)]


def _middle(points: Sequence[tuple[float, float]], t: float) -> tuple[float, float]:
    parts = [math.comb(3, k) * (1 - t) ** (3 - k) * t**k for k in range(4)]
    x, y = (sum(part * point[axis] for part, point in zip(parts, points, strict=True)) for axis in (0, 1))
    return x, y
