"""Programs as pictures: regions as boxes of the canvas, families as colours, edges as arrows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from volumetric.program.layer.ports import Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of, write_of_edge
from volumetric.viz.figure import new_figure, text_width
from volumetric.viz.program_arrows import STYLES, WIDTHS, Arrows, rule_colour
from volumetric.viz.program_labels import Labels, fold_text
from volumetric.viz.program_sheet import Sheet, family_colours, text_box

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE, _SMALL = 10.0, 7.0
"""Sizes of the title and of the legend, in points."""
_ROW: Final = 0.165
"""Inches of a line of the legend."""
_LEAST: Final = 3.2
"""Minimum width of a picture in inches."""


def draw_program(program: Program, title: str = "program") -> Figure:
    """Draw a program on its canvas.

    Each region is a box, in the colour of its family, with carrier, clock and ports as text. Strips between borders of
    regions are as wide as their text, so that boxes are not to scale; numbers at the sides are coordinates. Axes before
    the last two, frames too, are split at the borders of regions into panels; a long, narrow canvas is split into
    bands. Arrows go from the region that an edge reads to the one that it writes. Colours are rules; a wide line
    replaces, a dashed one writes through a gate, a dotted one never writes. Conditions, lags and weights are next to
    the arrows, or in the legend under a number.

    Parameters
    ----------
    title : title above the picture

    Raises
    ------
    SpecError : masks or lags of edges do not fit
    UnsupportedError : matplotlib is not installed
    """
    sheet, facts, colours = Sheet(program), facts_of(program), family_colours(program)
    spots = {name: sheet.spots(name) for name in sheet.texts}
    texts = (text_box(spot, sheet.texts[name]) for name, of in spots.items() for spot in of)
    arrows = Arrows(facts, {name: of[0] for name, of in spots.items() if of}, texts)
    wide = max(sheet.wide + 0.75, text_width(title, _TITLE) + 0.3, _LEAST)
    marks = _marks(program, colours, list(dict.fromkeys(wire.rule for wire in facts.wires)), sheet.left_out)
    marks += _notes(arrows.labels, wide)
    columns = _columns([mark.get_label() for mark in marks], wide)
    legend = sum(
        max(str(mark.get_label()).count("\n") + 1 for mark in marks[row::rows])
        for rows in [math.ceil(len(marks) / columns)]
        for row in range(rows)
    )
    high = 0.35 + (sheet.high + 0.4) + _ROW * legend + 0.15
    figure = new_figure(width=wide, height=high)
    figure.set_layout_engine(None)  # positions are fixed: an inch of the sheet is an inch of the figure
    of_all = (sheet.wide + 0.45) / wide, (sheet.high + 0.4) / high
    axes = figure.add_axes(((1 - of_all[0]) / 2, 1 - 0.35 / high - of_all[1], *of_all))
    axes.set_xlim(-0.3, sheet.wide + 0.15)
    axes.set_ylim(sheet.high + 0.15, -0.25)
    axes.set_axis_off()
    figure.suptitle(title, fontsize=_TITLE, y=1 - 0.12 / high, va="top")
    figure.legend(
        handles=marks, loc="lower center", ncols=columns, fontsize=_SMALL, frameon=False, handlelength=2.2,
        columnspacing=1.4, borderaxespad=0.4,
    )  # fmt: skip
    sheet.draw_grounds(axes)
    for name in sorted(program.canvas.regions, key=lambda name: -program.canvas.regions[name].size):
        sheet.draw_region(axes, name, spots[name], colours[program.canvas.regions[name].family])
    arrows.draw(axes)
    return figure


def _columns(labels: Sequence[object], wide: float) -> int:
    """Return the number of legend columns that fit into a width."""
    most = max(text_width(line, _SMALL) for label in labels for line in str(label).split("\n"))
    return max(1, min(4, len(labels), int((wide - 0.1) / (most + 0.5))))


def _notes(labels: Labels, wide: float) -> list[Any]:
    """Return legend entries for labels without room next to their arrows."""
    from matplotlib.lines import Line2D

    letters = max(20, int((wide - 0.7) / 0.062))
    marks: list[Any] = [
        Line2D([], [], ls="none", label="\n".join(fold_text(f"{number}: {text}", letters)))
        for text, number in labels.notes.items()
    ]
    if labels.left_out:
        marks.append(Line2D([], [], ls="none", label=f"{labels.left_out:,} more conditions are not drawn"))
    return marks


def _marks(program: Program, colours: Mapping[str, str], rules: Sequence[str], left_out: int) -> list[Any]:
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
        marks.append(Line2D([], [], ls="none", label="\n".join(fold_text(f"signals: {', '.join(signals)}", 40))))
    if left_out:
        marks.append(Line2D([], [], ls="none", label=f"{left_out:,} more parts are not drawn"))
    return marks
