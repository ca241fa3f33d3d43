"""Programs as pictures: regions as boxes of the canvas, families as colours, edges as arrows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from volumetric.layers.program.declared import Program
from volumetric.layers.program.facts import facts_of, rule_of_edge, write_of_edge
from volumetric.layers.program.ports import Out, Signal
from volumetric.layers.program.reach import dead_outputs
from volumetric.viz.figure import keep_layout, new_figure
from volumetric.viz.program_arrows import LINE, STYLES, WIDTHS, Arrows, Spot, folded, rule_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAMILIES: Final = {
    "observation": "#dbe9f6", "state": "#e3f1dc", "memory": "#efe3f4", "residual": "#fbe3dc", "action": "#fdf0cf",
}  # fmt: skip
"""Colours of families; others take those of `_OTHERS` in turn."""
_OTHERS: Final = ("#e6e6e6", "#d8efec", "#f3dbe8", "#ece7d3", "#dfe1f2")
_LEAST, _MOST, _EACH = 1.0, 3.2, 0.16
"""Inches: the narrowest and the widest strip between two borders of regions, and of a position."""
_GAP: Final = 0.2
_PANELS: Final = 8


def draw_program(program: Program, title: str = "program") -> Figure:
    """Draw a program on its canvas.

    Each region is a box, in the colour of its family, with carrier, clock and ports as text. Strips between borders of
    regions are as wide as text needs, so that boxes are not to scale; numbers at the sides are coordinates. Axes before
    the last two, frames too, are cut where regions begin and end, and each part is a panel. Arrows go from what an edge
    reads to what it writes: colours are rules, a wide line replaces, a dashed one writes through a gate, a dotted one
    never writes. Conditions and lags stand beside them.

    Parameters
    ----------
    title : above the picture

    Raises
    ------
    SpecError : masks or lags of edges do not fit
    UnsupportedError : matplotlib is not installed
    """
    sheet = _Sheet(program)
    figure = new_figure(width=sheet.wide + 0.9, height=sheet.high + 0.55 + 0.17 * sheet.legend_rows(program))
    axes = figure.add_subplot()
    axes.set_xlim(-0.3, sheet.wide + 0.15)
    axes.set_ylim(sheet.high + 0.15, -0.25)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_title(title, fontsize=10)
    colours, facts = family_colours(program), facts_of(program)
    _legend(figure, program, colours, list(dict.fromkeys(wire.rule for wire in facts.wires)), sheet.left_out)
    keep_layout(figure)
    sheet.draw_grounds(axes)
    spots = {name: sheet.spots(name) for name in sheet.texts}
    for name in sorted(program.canvas.regions, key=lambda name: -program.canvas.regions[name].size):
        sheet.draw_region(axes, name, spots[name], colours[program.canvas.regions[name].family])
    Arrows(facts, {name: of[0] for name, of in spots.items() if of}, sheet.texts).draw(axes)
    return figure


def family_colours(program: Program) -> dict[str, str]:
    """Return the colour of each family that a program has."""
    others = itertools.cycle(_OTHERS)
    families = dict.fromkeys(region.family for region in program.canvas.regions.values())
    return {family: FAMILIES.get(family) or next(others) for family in families}


class _Sheet:
    """Where everything is, in inches from the upper left corner.

    Attributes
    ----------
    wide, high : of all panels together
    """

    def __init__(self, program: Program) -> None:
        self.program, self.canvas = program, program.canvas
        regions = self.canvas.regions
        self.texts = {name: _text(program, name) for name in regions}
        axes = len(self.canvas.sides)
        self.flat = axes == 2  # frames and one axis of space: boxes in one line
        self.cuts = [self._cuts(axis) for axis in range(axes)]
        panels = list(itertools.product(*(range(len(self.cuts[axis]) - 1) for axis in self._before)))
        self.panels = panels[:_PANELS]
        self.left_out = len(panels) - len(self.panels)
        self.columns = self._strips(
            axes - 1, [0.062 * max(map(len, lines)) + 0.25 + 2 * _GAP for lines in self._lines()]
        )
        rows = [LINE * len(lines) + 0.4 + 2 * _GAP for lines in self._lines()]
        self.rows = [0.0, max(rows)] if self.flat else self._strips(axes - 2, rows)
        self.panel = self.columns[-1] + 0.5, self.rows[-1] + (0.6 if len(panels) > 1 else 0.25)
        self.across = max(1, min(len(self.panels), round(math.sqrt(len(self.panels) * self.panel[1] / self.panel[0]))))
        self.wide = self.panel[0] * self.across
        self.high = self.panel[1] * -(-len(self.panels) // self.across)

    @property
    def _before(self) -> range:
        """Axes before the last two; of a canvas with one axis of space frames."""
        return range(len(self.canvas.sides) - (1 if self.flat else 2))

    def _lines(self) -> list[list[str]]:
        return list(self.texts.values())

    def _cuts(self, axis: int) -> list[int]:
        """Borders of regions along an axis, and the ends of the canvas."""
        ends = {end for region in self.canvas.regions.values() for end in region.box[axis]}
        return sorted(ends | {0, self.canvas.sides[axis]})

    def _strips(self, axis: int, needs: Sequence[float]) -> list[float]:
        """Place of each border of an axis: strips grow with what they hold, and to what regions need for their text."""
        cuts = self.cuts[axis]
        sizes = [min(_MOST, max(0.45, _EACH * (b - a))) for a, b in itertools.pairwise(cuts)]
        for region, need in zip(self.canvas.regions.values(), needs, strict=True):
            first, last = (cuts.index(end) for end in region.box[axis])
            missing = max(need, _LEAST) - sum(sizes[first:last])
            for i in range(first, last):
                sizes[i] += max(0.0, missing) / (last - first)
        return [0.0, *itertools.accumulate(sizes)]

    def spots(self, name: str) -> list[Spot]:
        """The box of a region in each panel that it is in."""
        box, found = self.canvas.regions[name].box, list[Spot]()
        last = self.cuts[-1]
        left, right = (self.columns[last.index(end)] for end in box[-1])
        top, bottom = (0.0, self.rows[-1]) if self.flat else (self.rows[self.cuts[-2].index(end)] for end in box[-2])
        for number, panel in enumerate(self.panels):
            inside = (
                box[axis][0] <= self.cuts[axis][part] < box[axis][1]
                for axis, part in zip(self._before, panel, strict=True)
            )
            if all(inside):
                x, y = self._origin(number)
                found.append((x + left + _GAP, y + top + _GAP, right - left - 2 * _GAP, bottom - top - 2 * _GAP))
        return found

    def _origin(self, number: int) -> tuple[float, float]:
        head = 0.35 if len(self.panels) > 1 else 0.0
        return self.panel[0] * (number % self.across), self.panel[1] * (number // self.across) + head

    def draw_grounds(self, axes: Axes) -> None:
        """Draw the canvas of each panel, with coordinates, and what the panel is."""
        from matplotlib.patches import Rectangle

        small: dict[str, Any] = {"fontsize": 6, "color": "#777777"}
        for number, panel in enumerate(self.panels):
            x, y = self._origin(number)
            axes.add_patch(
                Rectangle((x, y), self.columns[-1], self.rows[-1], facecolor="#fafafa", edgecolor="#bbbbbb", lw=0.7)
            )
            for place, cut in zip(self.columns, self.cuts[-1], strict=True):
                axes.text(x + place, y - 0.04, str(cut), ha="center", va="bottom", **small)
            if not self.flat:
                for place, cut in zip(self.rows, self.cuts[-2], strict=True):
                    axes.text(x - 0.05, y + place, str(cut), ha="right", va="center", **small)
            if len(self.panels) > 1:
                said = [
                    f"{'frames' if axis == 0 else f'axis {axis - 1}'} {self.cuts[axis][i]}:{self.cuts[axis][i + 1]}"
                    for axis, i in zip(self._before, panel, strict=True)
                    if self.canvas.sides[axis] > 1
                ]
                axes.text(x, y - 0.2, ", ".join(said), ha="left", va="bottom", fontsize=7, color="#444444")

    def draw_region(self, axes: Axes, name: str, spots: Sequence[Spot], colour: str) -> None:
        """Draw the box of a region in each panel."""
        from matplotlib.patches import FancyBboxPatch

        for left, top, wide, high in spots:
            axes.add_artist(
                FancyBboxPatch(
                    (left, top), wide, high, boxstyle="round,pad=0,rounding_size=0.06", facecolor=colour,
                    edgecolor="#555555", linewidth=0.8, alpha=0.92, zorder=1,
                )
            )  # fmt: skip
            head, *rest = self.texts[name]
            axes.text(left + 0.07, top + 0.06, head, fontsize=8, weight="bold", va="top", zorder=5)
            axes.text(
                left + 0.07, top + 0.06 + 1.15 * LINE, "\n".join(rest), fontsize=6.5, va="top", zorder=5,
                color="#333333", linespacing=1.3,
            )  # fmt: skip

    def legend_rows(self, program: Program) -> int:
        """Lines that the legend takes."""
        marks = len(family_colours(program)) + len({rule_of_edge(program, e) for e in program.edges}) + 5
        return -(-marks // 4)


def _text(program: Program, name: str) -> list[str]:
    """Lines in the box of a region."""
    region = program.canvas.regions[name]
    found = [name, region.carrier if region.family in FAMILIES else f"{region.family}, {region.carrier}"]
    if region.clock is not None:
        found += folded(f"when {region.clock}")
    for port, of in program.ports.items():
        if not isinstance(of, Signal) and of.region == name:
            found.append(_out(program, port) if isinstance(of, Out) else f"→ {port}")
    return found


def _out(program: Program, port: str) -> str:
    """Name an output, and say where it depends on no input."""
    dead = port in dead_outputs(facts_of(program))
    return f"{port} → (depends on no input)" if dead else f"{port} →"


def _legend(figure: Figure, program: Program, colours: Mapping[str, str], rules: Sequence[str], left_out: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = [Patch(facecolor=c, edgecolor="#555555", lw=0.6, label=family) for family, c in colours.items()]
    marks += [Line2D([], [], color=rule_colour(rule), lw=1.6, label=rule) for rule in rules]
    writes = dict.fromkeys(write_of_edge(edge) for edge in program.edges)
    marks += [
        Line2D([], [], color="#555555", lw=WIDTHS[write], ls=STYLES[write], label=f"writes: {write}")
        for write in writes
    ]
    signals = [name for name, port in program.ports.items() if isinstance(port, Signal)]
    if signals:
        marks.append(Line2D([], [], ls="none", label=f"signals: {', '.join(signals)}"))
    if left_out:
        marks.append(Line2D([], [], ls="none", label=f"{left_out:,} more parts are not drawn"))
    figure.legend(
        handles=marks, loc="outside lower center", ncols=4, fontsize=7, frameon=False, handlelength=2.2,
        columnspacing=1.4,
    )  # fmt: skip
