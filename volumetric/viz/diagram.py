"""Diagrams: boxes, lines between them by weight, frames around groups of boxes, and a legend."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from volumetric.viz.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SWEEPS = 12
_LINE = 0.45
"""Height of a passing line, as a fraction of a box."""

Key: TypeAlias = str | tuple[int, int]
"""A box, or the point of line i in a column."""


@dataclass(slots=True)
class DiagramLayout:
    """Positions; columns count from 0 at the left, rows are in units of a box, downwards from 0 in the middle.

    Attributes
    ----------
    column : column of each box
    row : row of each box
    ways : for each line, its rows in the columns between its ends, from left to right
    """

    column: dict[str, int]
    row: dict[str, float] = field(default_factory=dict)
    ways: list[list[tuple[int, float]]] = field(default_factory=list)

    @property
    def height(self) -> tuple[float, float]:
        """Smallest and largest row."""
        rows = [*self.row.values(), *(row for way in self.ways for _, row in way)]
        return min(rows), max(rows)


def lay_out(columns: Mapping[str, int], lines: Sequence[tuple[str, str]]) -> DiagramLayout:
    """Place boxes in known columns, with few crossings and bends of lines.

    Parameters
    ----------
    columns : box → column; boxes of a column keep this order unless lines suggest another
    lines : pairs of boxes; they may lead backwards or stay in a column
    """
    used = {number: place for place, number in enumerate(sorted(set(columns.values())))}
    column = {name: used[number] for name, number in columns.items()}
    members: list[list[Key]] = [[] for _ in used]
    for name, number in column.items():
        members[number].append(name)
    neighbours: dict[Key, list[tuple[int, Key]]] = {}
    passed: list[list[tuple[int, Key]]] = []
    for i, (a, b) in enumerate(lines):
        left, right = sorted((a, b), key=column.__getitem__)
        between = [(number, (i, number)) for number in range(column[left] + 1, column[right])]
        passed.append([*between])
        for number, key in between:
            members[number].append(key)
        chain: list[tuple[int, Key]] = [(column[left], left), *between, (column[right], right)]
        if column[left] != column[right]:
            for (c, one), (d, other) in itertools.pairwise(chain):
                neighbours.setdefault(one, []).append((d, other))
                neighbours.setdefault(other, []).append((c, one))
    rows: dict[Key, float] = {}
    for column_members in members:
        _stack(column_members, [float(i) for i in range(len(column_members))], rows)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        order = range(len(members)) if forwards else range(len(members) - 1, -1, -1)
        for number in order:
            desired = []
            for key in members[number]:
                near = [rows[other] for c, other in neighbours.get(key, ()) if (c < number) == forwards or sweep > 5]
                desired.append(sum(near) / len(near) if near else rows[key] if key in neighbours else 0.0)
            if sweep < _SWEEPS // 2:
                places = sorted(range(len(desired)), key=lambda i, w=desired: w[i])
                members[number] = [members[number][i] for i in places]
                desired = [desired[i] for i in places]
            _stack(members[number], desired, rows)
    return DiagramLayout(
        column=column,
        row={name: rows[name] for name in column},
        ways=[[(number, rows[key]) for number, key in between] for between in passed],
    )


def _stack(keys: Sequence[Key], desired: Sequence[float], rows: dict[Key, float]) -> None:
    """Assign rows to the keys of a column, in this order, without overlap, and closest to the wanted rows.

    After subtracting the height of the preceding keys, rows only need to ascend: isotonic regression, by pooling
    neighbours in the wrong order (Ayer et al. 1955).
    """
    offsets = [0.0]
    for one, other in itertools.pairwise(keys):
        offsets.append(offsets[-1] + (_room(one) + _room(other)) / 2)
    pools: list[tuple[float, int]] = []
    for row, offset in zip(desired, offsets, strict=False):
        mean, count = row - offset, 1
        while pools and pools[-1][0] > mean:
            before, members = pools.pop()
            mean, count = (mean * count + before * members) / (count + members), count + members
        pools.append((mean, count))
    fitted = [mean for mean, count in pools for _ in range(count)]
    rows.update({key: row + offset for key, row, offset in zip(keys, fitted, offsets, strict=False)})


def _room(key: Key) -> float:
    return 1.0 if isinstance(key, str) else _LINE


POSITIVE, NEGATIVE, PLAIN = "#2166ac", "#b2182b", "#555555"
_FILLS: Final = {"input": "#eef3e2", "output": "#fdf0d5", "hidden": "#ffffff", "join": "#e9e9e9"}
_WIDE, _HIGH = 1.3, 0.46
_PITCH, _ROW = 2.35, 0.74
"""Inches: size of a box, and distances between columns and between rows."""
_THIN, _THICK = 0.5, 3.0
_NUMBERS = 60
"""Maximum number of lines with their weight as text; the strongest lines have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramBox:
    """A box: its lines of text, its column, and its role, which sets its colour."""

    text: str
    column: int
    role: str = "hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramLine:
    """A line between boxes. `weight` sets colour, width and text; None: a plain line. `faint`: dotted."""

    source: str
    target: str
    weight: float | None = None
    faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramFrame:
    """A frame around boxes, with a name."""

    text: str
    boxes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """Contents of a diagram. `faint` is the legend text of dotted lines."""

    title: str
    boxes: Mapping[str, DiagramBox]
    edges: Sequence[DiagramLine]
    frames: Sequence[DiagramFrame] = ()
    faint: str = "disabled"
    notes: Sequence[str] = field(default_factory=tuple)

    def draw(self) -> Figure:
        """Return the picture; its size depends on its contents, up to the limits of `new_figure`."""
        edges = list(self.edges)
        layout = lay_out(
            {name: box.column for name, box in self.boxes.items()}, [(edge.source, edge.target) for edge in edges]
        )
        low, high = layout.height
        columns = 1 + max(layout.column.values())
        margin, legend = 0.3 + 0.13 * min(len(self.frames), 4), 0.4
        beside = _bend_room(edges, layout, columns - 1)
        width = max(columns * _PITCH - (_PITCH - _WIDE) + 2 * margin + beside, 4.6)
        height = (high - low) * _ROW + _HIGH + 2 * margin + 0.35
        figure = new_figure(width=width, height=height + legend)
        axes = figure.add_subplot()
        for frame in sorted(self.frames, key=lambda frame: -len(frame.boxes)):
            self._frame(axes, frame, layout)
        strongest = max((abs(edge.weight) for edge in edges if edge.weight is not None), default=0.0) or 1.0
        shown = sorted((e for e in edges if e.weight is not None), key=lambda e: -abs(e.weight or 0.0))[:_NUMBERS]
        ports = _ports(edges, layout)
        for i, edge in enumerate(edges):
            _line(axes, edge, layout, i, ports, strongest, numbered=edge in shown)
        for name, box in self.boxes.items():
            x, y = _place(layout, name)
            axes.text(x, y, _shorten(box.text), ha="center", va="center", fontsize=7, zorder=4, linespacing=1.25)
            _box(axes, *_place(layout, name), _FILLS[box.role])
        spread = (width - beside - (columns - 1) * _PITCH) / 2
        axes.set_xlim(-spread, (columns - 1) * _PITCH + spread + beside)
        axes.set_ylim(high * _ROW + _HIGH / 2 + margin, low * _ROW - _HIGH / 2 - margin)
        axes.set_aspect("equal")
        axes.set_title(self.title, fontsize=10)
        axes.set_axis_off()
        self._legend(figure, edges, strongest, hidden=len([e for e in edges if e.weight is not None]) - len(shown))
        return figure

    def _frame(self, axes: Axes, frame: DiagramFrame, layout: DiagramLayout) -> None:
        from matplotlib.patches import FancyBboxPatch

        inside = sum(set(other.boxes) < set(frame.boxes) for other in self.frames)
        pad = 0.1 + 0.13 * min(inside, 4)
        places = [_place(layout, name) for name in frame.boxes]
        left, right = min(x for x, _ in places) - _WIDE / 2 - pad, max(x for x, _ in places) + _WIDE / 2 + pad
        top, bottom = min(y for _, y in places) - _HIGH / 2 - pad - 0.08, max(y for _, y in places) + _HIGH / 2 + pad
        axes.add_patch(
            FancyBboxPatch(
                (left, top), right - left, bottom - top, boxstyle="round,pad=0,rounding_size=0.1",
                facecolor="#f6f6fb", edgecolor="#9a9ab0", linewidth=0.8, zorder=0.5,
            )
        )  # fmt: skip
        axes.text(left + 0.06, top + 0.02, frame.text, fontsize=6, color="#60607a", va="top", zorder=1)

    def _legend(self, figure: Figure, edges: Sequence[DiagramLine], strongest: float, *, hidden: int) -> None:
        from matplotlib.lines import Line2D

        marks: list[Line2D] = []

        def mark(label: str, **style: Any) -> None:
            marks.append(Line2D([], [], label=label, **style))

        weights = [edge.weight for edge in edges if edge.weight is not None]
        if weights:
            mark("positive weight", color=POSITIVE, linewidth=2)
            mark("negative weight", color=NEGATIVE, linewidth=2)
            for part in (0.1, 1.0):
                mark(f"|weight| {part * strongest:.2g}", color=PLAIN, linewidth=_width(part * strongest, strongest))
        if any(edge.faint for edge in edges):
            mark(self.faint, color=PLAIN, linewidth=1.2, linestyle=":")
        notes = [*self.notes, *([f"numbers at the {_NUMBERS} strongest lines"] if hidden > 0 else [])]
        for note in notes:
            mark(note, linestyle="none")
        if marks:
            figure.legend(
                handles=marks, loc="outside lower center", ncols=min(len(marks), 3), fontsize=7, frameon=False,
                handlelength=2.4, columnspacing=1.4,
            )  # fmt: skip


def _place(layout: DiagramLayout, name: str) -> tuple[float, float]:
    return layout.column[name] * _PITCH, layout.row[name] * _ROW


def _bend_room(edges: Sequence[DiagramLine], layout: DiagramLayout, last: int) -> float:
    """Return the width of lines within the last column, at its right."""
    inside = [edge for edge in edges if layout.column[edge.source] == layout.column[edge.target] == last]
    return max((_reach(layout, edge) for edge in inside), default=0.0)


def _reach(layout: DiagramLayout, edge: DiagramLine) -> float:
    """Return how far a line within a column extends to the right of the boxes."""
    return 0.5 + 0.12 * _ROW * abs(layout.row[edge.source] - layout.row[edge.target])


def _box(axes: Axes, x: float, y: float, fill: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (x - _WIDE / 2, y - _HIGH / 2), _WIDE, _HIGH, boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=fill, edgecolor="#444", linewidth=0.8, zorder=3,
        )
    )  # fmt: skip


def _shorten(text: str, most: int = 21) -> str:
    """Shorten lines of text that are wider than a box, in their middle."""
    half = most // 2
    return "\n".join(s if len(s) <= most else f"{s[:half]}…{s[-half:]}" for s in text.split("\n"))


def _width(weight: float, strongest: float) -> float:
    return _THIN + (_THICK - _THIN) * abs(weight) / strongest


def _ports(edges: Sequence[DiagramLine], layout: DiagramLayout) -> dict[tuple[int, str], float]:
    """Return where lines leave and reach boxes, in inches from the middle of a side, ordered by their other ends."""
    offsets: dict[tuple[int, str], float] = {}
    for end in ("source", "target"):
        by_box: dict[str, list[int]] = {}
        for i, edge in enumerate(edges):
            by_box.setdefault(getattr(edge, end), []).append(i)
        for members in by_box.values():
            other = "target" if end == "source" else "source"

            def near(i: int, end: str = end, other: str = other) -> float:
                way = layout.ways[i]
                forwards = layout.column[edges[i].source] <= layout.column[edges[i].target]
                if way:
                    return way[0][1] if (end == "source") == forwards else way[-1][1]
                return layout.row[getattr(edges[i], other)]

            members.sort(key=near)
            room = min(0.09, (_HIGH - 0.12) / max(len(members), 1))
            for place, i in enumerate(members):
                offsets[i, end] = (place - (len(members) - 1) / 2) * room
    return offsets


def _line(
    axes: Axes, edge: DiagramLine, layout: DiagramLayout, i: int, ports: Mapping[tuple[int, str], float],
    strongest: float, *, numbered: bool,
) -> None:  # fmt: skip
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    points = _way(edge, layout, i, ports)
    path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
    weight = edge.weight
    colour = PLAIN if weight is None else POSITIVE if weight >= 0 else NEGATIVE
    axes.add_patch(
        FancyArrowPatch(
            path=path, arrowstyle="-|>", mutation_scale=8, color=colour, alpha=0.55 if edge.faint else 0.9,
            linewidth=1.0 if weight is None else _width(weight, strongest), linestyle=":" if edge.faint else "-",
            shrinkA=0, shrinkB=0, zorder=2, capstyle="butt", joinstyle="miter",
        )
    )  # fmt: skip
    if numbered and weight is not None:
        # Stagger the texts, so that neighbours do not overlap.
        x, y = _point_along(points[:4] if len(points) > 4 else points, 0.3 + 0.2 * (i % 3))
        axes.text(
            x, y, f"{weight:.2g}", fontsize=6, color=colour, ha="center", va="center", zorder=2.5,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        )  # fmt: skip


def _way(
    edge: DiagramLine, layout: DiagramLayout, i: int, ports: Mapping[tuple[int, str], float]
) -> list[tuple[float, float]]:  # fmt: skip
    """Return points of cubic curves from box to box, through the line's point in every column between."""
    (x0, y0), (x1, y1) = _place(layout, edge.source), _place(layout, edge.target)
    y0, y1 = y0 + ports[i, "source"], y1 + ports[i, "target"]
    half = _WIDE / 2
    if layout.column[edge.source] == layout.column[edge.target]:
        out = half + _reach(layout, edge)  # next to the column; a self-connection is a loop
        lift = 0.16 if edge.source == edge.target else 0.0
        return [(x0 + half, y0 - lift), (x0 + out, y0 - lift), (x1 + out, y1 + lift), (x1 + half, y1 + lift)]
    forwards = x1 > x0
    sign = 1.0 if forwards else -1.0
    way = layout.ways[i] if forwards else layout.ways[i][::-1]
    corners = [(x0 + sign * half, y0)]
    for column, row in way:
        x, y = column * _PITCH, row * _ROW
        corners += [(x - sign * half, y), (x + sign * half, y)]
    corners.append((x1 - sign * half, y1))
    points = [corners[0]]
    for (ax, ay), (bx, by) in itertools.pairwise(corners):
        reach = (bx - ax) / 2
        points += [(ax + reach, ay), (bx - reach, by), (bx, by)]
    return points


def _point_along(points: Sequence[tuple[float, float]], t: float) -> tuple[float, float]:
    """Return the point of a cubic curve at `t`."""
    weights = [math.comb(3, k) * (1 - t) ** (3 - k) * t**k for k in range(4)]
    x, y = (sum(w * p[axis] for w, p in zip(weights, points, strict=True)) for axis in (0, 1))
    return x, y
