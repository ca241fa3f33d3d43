"""Layout of a program's picture: boxes of regions and their text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from volumetric.program.layer.ports import Out, Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.reachability import dead_outputs
from volumetric.viz.figure import text_width
from volumetric.viz.program_labels import LINE, Spot, edge_label, fold_text, label_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from volumetric.program.layer.region import Canvas

FAMILIES: Final = {
    "observation": "#dbe9f6", "state": "#e3f1dc", "memory": "#efe3f4", "residual": "#fbe3dc", "action": "#fdf0cf",
}  # fmt: skip
"""Colours of families; other families cycle through `_OTHERS`."""
_OTHERS: Final = ("#e6e6e6", "#d8efec", "#f3dbe8", "#ece7d3", "#dfe1f2")
_LEAST, _MOST, _EACH = 1.0, 3.2, 0.16
"""Inches: minimum and maximum width of a strip between two borders of regions, and width of a position."""
_GAP: Final = 0.2
_WIDEST_GAP: Final = 0.5
"""Inches next to a box, and their maximum with labels of arrows."""
_PANELS: Final = 8
_LONG, _STRIP = 9.0, 3.0
"""A canvas longer than this many inches, and than this many times its other side, is split into bands."""
NAME, TEXT = 8.0, 6.5
"""Sizes of the text in a box, in points."""


def family_colours(program: Program) -> dict[str, str]:
    """Return the colour of each family of a program."""
    others = itertools.cycle(_OTHERS)
    families = dict.fromkeys(region.family for region in program.canvas.regions.values())
    return {family: FAMILIES.get(family) or next(others) for family in families}


def region_text(program: Program, name: str) -> list[str]:
    """Return the lines in the box of a region: name, family and carrier, clock, ports."""
    region = program.canvas.regions[name]
    lines = [name, region.carrier if region.family in FAMILIES else f"{region.family}, {region.carrier}"]
    if region.clock is not None:
        lines += fold_text(f"when {region.clock}")
    for port, of in program.ports.items():
        if not isinstance(of, Signal) and of.region == name:
            lines.append(_output_text(program, port) if isinstance(of, Out) else f"→ {port}")
    return lines


def _output_text(program: Program, port: str) -> str:
    """Return the text of an output; it says if the output depends on no input."""
    dead = port in dead_outputs(facts_of(program))
    return f"{port} → (depends on no input)" if dead else f"{port} →"


def text_box(spot: Spot, lines: Sequence[str]) -> Spot:
    """Return the place of a region's text in its box."""
    return spot[0] + 0.05, spot[1] + 0.05, _width(lines) + 0.04, 1.25 * LINE + 0.118 * (len(lines) - 1)


def _width(lines: Sequence[str]) -> float:
    head, *rest = lines
    return max(text_width(head, NAME, bold=True), *(text_width(line, TEXT) for line in rest))


class Sheet:
    """Positions, in inches from the upper left corner.

    Strips between borders of regions are as wide as their text. Axes before the last two, frames too, are split at the
    borders of regions into panels. A canvas that is much longer than wide is split into bands, which are also panels.

    Attributes
    ----------
    wide, high : size of all panels together
    texts : lines in the box of each region
    left_out : number of panels that are not drawn because there are too many
    """

    def __init__(self, program: Program) -> None:
        self.program: Program = program
        self.canvas: Canvas = program.canvas
        regions = self.canvas.regions
        self.texts: dict[str, list[str]] = {name: region_text(program, name) for name in regions}
        axes = len(self.canvas.sides)
        self.flat: bool = axes == 2  # frames and one axis of space: boxes in one line
        self.cuts: list[list[int]] = [self._cuts(axis) for axis in range(axes)]
        parts = list(itertools.product(*(range(len(self.cuts[axis]) - 1) for axis in self._before)))
        self.left_out: int = max(0, len(parts) - _PANELS)
        labels = [label_width(text) for text in map(edge_label, program.edges) if text]
        self.gaps: tuple[float, float] = min(_WIDEST_GAP, max([_GAP, *(0.5 * wide + 0.1 for wide in labels)])), _GAP
        lines = list(self.texts.values())
        self.columns: list[float] = self._strips(axes - 1, [_width(each) + 0.16 + 2 * self.gaps[0] for each in lines])
        rows = [LINE * len(each) + 0.4 + 2 * self.gaps[1] for each in lines]
        self.rows: list[float] = [0.0, max(rows)] if self.flat else self._strips(axes - 2, rows)
        across, down = self._bands(axes - 1, self.columns, self.rows), [(0, len(self.rows) - 1)]
        if not self.flat:
            down = self._bands(axes - 2, self.rows, self.columns)
        self.panels: list[tuple[tuple[int, ...], tuple[int, int], tuple[int, int]]] = list(
            itertools.product(parts[:_PANELS], down, across)
        )
        self.headed: bool = len(parts) > 1
        wide, high = (
            max(places[last] - places[first] for first, last in bands)
            for places, bands in ((self.columns, across), (self.rows, down))
        )
        self.panel: tuple[float, float] = wide + 0.5, high + (0.6 if self.headed else 0.35)
        self.across: int = max(
            1, min(len(self.panels), round(math.sqrt(len(self.panels) * self.panel[1] / self.panel[0])))
        )
        self.wide: float = self.panel[0] * self.across - 0.5
        self.high: float = self.panel[1] * -(-len(self.panels) // self.across) - 0.2

    @property
    def _before(self) -> range:
        """Axes before the last two; for a canvas with one spatial axis, the frames."""
        return range(len(self.canvas.sides) - (1 if self.flat else 2))

    def _cuts(self, axis: int) -> list[int]:
        """Return the borders of regions along an axis, and the ends of the canvas."""
        ends = {end for region in self.canvas.regions.values() for end in region.box[axis]}
        return sorted(ends | {0, self.canvas.sides[axis]})

    def _strips(self, axis: int, needs: Sequence[float]) -> list[float]:
        """Return the place of each border of an axis; strips grow with their positions and the text of regions."""
        cuts = self.cuts[axis]
        sizes = [min(_MOST, max(0.45, _EACH * (b - a))) for a, b in itertools.pairwise(cuts)]
        for region, need in zip(self.canvas.regions.values(), needs, strict=True):
            first, last = (cuts.index(end) for end in region.box[axis])
            missing = max(need, _LEAST) - sum(sizes[first:last])
            for i in range(first, last):
                sizes[i] += max(0.0, missing) / (last - first)
        return [0.0, *itertools.accumulate(sizes)]

    def _bands(self, axis: int, places: Sequence[float], others: Sequence[float]) -> list[tuple[int, int]]:
        """Return the first and last border of each band of an axis: one band, unless the canvas is a strip along it.

        Bands end at borders that split no region, if there is one nearby.
        """
        last, long, short = len(places) - 1, places[-1], others[-1]
        if long <= max(_LONG, _STRIP * short):
            return [(0, last)]
        count = min(last, math.ceil(math.sqrt(long / (1.5 * (short + 0.5)))))
        boxes = [region.box[axis] for region in self.canvas.regions.values()]
        through = [sum(low < cut < high for low, high in boxes) for cut in self.cuts[axis]]
        ends = [0]
        for band in range(1, count):
            aim, far = long * band / count, 0.4 * long / count
            near = [i for i in range(ends[-1] + 1, last) if abs(places[i] - aim) <= far]
            if near:
                ends.append(min(near, key=lambda i: (through[i], abs(places[i] - aim))))
        return list(itertools.pairwise([*ends, last]))

    def spots(self, name: str) -> list[Spot]:
        """Return the box of a region in each of its panels."""
        box, spots = self.canvas.regions[name].box, list[Spot]()
        across = [self.cuts[-1].index(end) for end in box[-1]]
        down = [0, 1] if self.flat else [self.cuts[-2].index(end) for end in box[-2]]
        for number, (parts, rows, columns) in enumerate(self.panels):
            inside = (
                box[axis][0] <= self.cuts[axis][part] < box[axis][1]
                for axis, part in zip(self._before, parts, strict=True)
            )
            left, right = max(across[0], columns[0]), min(across[1], columns[1])
            top, bottom = max(down[0], rows[0]), min(down[1], rows[1])
            if all(inside) and left < right and top < bottom:
                x, y = self._origin(number)
                x, y = x + self.columns[left], y + self.rows[top]
                wide, high = self.columns[right] - self.columns[left], self.rows[bottom] - self.rows[top]
                (gx, gy) = self.gaps
                spots.append((x + gx, y + gy, wide - 2 * gx, high - 2 * gy))
        return spots

    def _origin(self, number: int) -> tuple[float, float]:
        """Return the place in a panel of borders at 0 inches."""
        _, rows, columns = self.panels[number]
        x, y = self.panel[0] * (number % self.across), self.panel[1] * (number // self.across)
        return x - self.columns[columns[0]], y + (0.35 if self.headed else 0.0) - self.rows[rows[0]]

    def draw_grounds(self, axes: Axes) -> None:
        """Draw the canvas of each panel, with coordinates and the panel's title."""
        from matplotlib.patches import Rectangle

        small: dict[str, Any] = {"fontsize": 6, "color": "#777777"}
        for number, (parts, (top, bottom), (left, right)) in enumerate(self.panels):
            x, y = self._origin(number)
            corner, end = (x + self.columns[left], y + self.rows[top]), (x + self.columns[right], y + self.rows[bottom])
            axes.add_patch(
                Rectangle(
                    corner, end[0] - corner[0], end[1] - corner[1], facecolor="#fafafa", edgecolor="#bbbbbb", lw=0.7
                )
            )
            for i in range(left, right + 1):
                place, cut = self.columns[i], self.cuts[-1][i]
                axes.text(x + place, corner[1] - 0.04, str(cut), ha="center", va="bottom", **small)
            if not self.flat:
                for i in range(top, bottom + 1):
                    axes.text(
                        corner[0] - 0.05, y + self.rows[i], str(self.cuts[-2][i]), ha="right", va="center", **small
                    )
            if self.headed:
                texts = [
                    f"{'frames' if axis == 0 else f'axis {axis - 1}'} {self.cuts[axis][i]}:{self.cuts[axis][i + 1]}"
                    for axis, i in zip(self._before, parts, strict=True)
                    if self.canvas.sides[axis] > 1
                ]
                axes.text(
                    corner[0], corner[1] - 0.2, ", ".join(texts), ha="left", va="bottom", fontsize=7, color="#444444"
                )

    def draw_region(self, axes: Axes, name: str, spots: Sequence[Spot], colour: str) -> None:
        """Draw the box of a region in each panel; its text has a margin against arrows that cross it."""
        from matplotlib.patches import FancyBboxPatch
        from matplotlib.patheffects import withStroke

        around = [withStroke(linewidth=1.6, foreground=colour)]
        for left, top, wide, high in spots:
            axes.add_artist(
                FancyBboxPatch(
                    (left, top), wide, high, boxstyle="round,pad=0,rounding_size=0.06", facecolor=colour,
                    edgecolor="#555555", linewidth=0.8, alpha=0.92, zorder=1,
                )
            )  # fmt: skip
            head, *rest = self.texts[name]
            axes.text(
                left + 0.07, top + 0.06, head, fontsize=NAME, weight="bold", va="top", zorder=5, path_effects=around
            )
            axes.text(
                left + 0.07, top + 0.06 + 1.15 * LINE, "\n".join(rest), fontsize=TEXT, va="top", zorder=5,
                color="#333333", linespacing=1.3, path_effects=around,
            )  # fmt: skip
