"""Figures for papers of what a page of the scope shows, from the numbers that the page saves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import numpy as np

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import path_hint
from volumetric.viz.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST: Final = 1 << 26
"""Maximum bytes of a file."""
_WIDTH: Final = 6.5
"""Inches: the width of a page's text."""
_HEIGHTS: Final = {"lines": 2.6, "matrix": 4.0, "scene": 4.6}
Colour = Annotated[str, msgspec.Meta(pattern=r"^#[0-9a-fA-F]{6}$|^rgb\(\d+, ?\d+, ?\d+\)$")]


class _Line(msgspec.Struct, frozen=True):
    """A line of a chart; a missing number is a gap."""

    name: str
    x: list[float]
    y: list[float | None]
    colour: Colour
    dashed: bool = False
    faint: bool = False


class LinesFigure(msgspec.Struct, frozen=True, tag_field="kind", tag="lines"):
    """A chart of lines."""

    series: list[_Line]
    title: str = ""
    xLabel: str = ""  # noqa: N815  (names of the page's scripts)
    yLabel: str = ""  # noqa: N815
    log: bool = False


class MatrixFigure(msgspec.Struct, frozen=True, tag_field="kind", tag="matrix"):
    """A matrix as coloured cells; a missing number has the colour of values that are not finite."""

    shape: tuple[int, int]
    values: list[float | None]
    range: tuple[float, float]
    map: Literal["viridis", "cividis", "magma", "PuOr", "RdBu"] = "viridis"
    title: str = ""
    rowNames: list[str] = []  # noqa: N815
    columnNames: list[str] = []  # noqa: N815


class _Mark(msgspec.Struct, frozen=True):
    """A node of a scene as seen: its centre and diameter in the page's pixels."""

    x: float
    y: float
    size: float
    colour: Colour
    label: str = ""


class _Stroke(msgspec.Struct, frozen=True):
    """An edge of a scene as seen."""

    x0: float
    y0: float
    x1: float
    y1: float
    colour: Colour
    width: float = 1.0
    opacity: float = 1.0


class SceneFigure(msgspec.Struct, frozen=True, tag_field="kind", tag="scene"):
    """A scene as seen, the farthest marks first."""

    width: float
    height: float
    marks: list[_Mark]
    strokes: list[_Stroke] = []
    title: str = ""


class ScopeFigures(msgspec.Struct, frozen=True, rename={"version": "volumetric.figure"}):
    """What a page saves for a figure."""

    version: Literal[1]
    title: str
    figures: list[LinesFigure | MatrixFigure | SceneFigure]


def read_scope_figures(path: str | Path) -> ScopeFigures:
    """Read a file that a page saved by "Figure for a paper".

    Raises
    ------
    CheckpointError : the file cannot be read, or is none of a page
    """
    where = Path(path)
    try:
        if where.stat().st_size > _MOST:
            raise CheckpointError(f"{where} has more than {_MOST:,} bytes, which no figure of a page has")
        content = where.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {where}: {error.strerror or error}", hint=path_hint(where)) from None
    try:
        return scope_figures(msgspec.json.decode(content))
    except (msgspec.DecodeError, RecursionError, SpecError) as error:
        raise CheckpointError(f"{where} is not a figure of a page of the scope: {error}") from None


def scope_figures(content: Any) -> ScopeFigures:
    """Return what a page saves, from its JSON data.

    Raises
    ------
    SpecError : the data has another form
    """
    try:
        figures = msgspec.convert(content, ScopeFigures)
    except msgspec.ValidationError as error:
        raise SpecError(f"the figure is invalid: {error}") from None
    if not figures.figures:
        raise SpecError("there is no figure", hint="save it from a view with a chart, a matrix or a scene")
    for figure in figures.figures:
        if isinstance(figure, MatrixFigure) and len(figure.values) != figure.shape[0] * figure.shape[1]:
            raise SpecError(f"a matrix of {figure.shape[0]} × {figure.shape[1]} has {len(figure.values)} values")
        if isinstance(figure, LinesFigure) and any(len(line.x) != len(line.y) for line in figure.series):
            raise SpecError("a line has another number of x than of y")
    return figures


def draw_scope_figures(figures: ScopeFigures) -> Figure:
    """Draw what a page saved, one below the other, as wide as a page's text.

    Raises
    ------
    UnsupportedError : Matplotlib is not installed
    """
    heights = [_HEIGHTS[figure.__struct_config__.tag] for figure in figures.figures]  # pyright: ignore[reportArgumentType]
    drawn = new_figure(width=_WIDTH, height=sum(heights))
    places: Any = drawn.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for figure, (axes,) in zip(figures.figures, places, strict=True):
        match figure:
            case LinesFigure():
                _draw_lines(axes, figure)
            case MatrixFigure():
                _draw_matrix(axes, figure)
            case SceneFigure():
                _draw_scene(axes, figure)
        axes.set_title(figure.title, fontsize=10)
    return drawn


def _draw_lines(axes: Axes, figure: LinesFigure) -> None:
    for line in figure.series:
        y = np.array([np.nan if value is None else value for value in line.y], np.float64)
        axes.plot(
            line.x, y, color=_hex(line.colour), label=None if line.faint else _plain(line.name),
            linewidth=0.7 if line.faint else 1.4, alpha=0.35 if line.faint else 1.0,
            linestyle="--" if line.dashed else "-",
        )  # fmt: skip
    axes.set(xlabel=_plain(figure.xLabel), ylabel=_plain(figure.yLabel), yscale="log" if figure.log else "linear")
    axes.grid(alpha=0.25)
    if sum(not line.faint for line in figure.series) > 1:
        axes.legend(fontsize=8)


def _draw_matrix(axes: Axes, figure: MatrixFigure) -> None:
    from matplotlib import colormaps

    values = np.array([np.nan if value is None else value for value in figure.values], np.float64)
    shades = colormaps[figure.map].copy()
    shades.set_bad("#c2185b")
    low, high = figure.range
    cells = values.reshape(figure.shape)
    image = axes.imshow(cells, cmap=shades, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, shrink=0.9)
    for names, places in ((figure.rowNames, axes.set_yticks), (figure.columnNames, axes.set_xticks)):
        if 0 < len(names) <= 40:
            places(range(len(names)), [_plain(name) for name in names], fontsize=7)
    if 0 < len(figure.columnNames) <= 40:
        axes.tick_params(axis="x", rotation=90)


def _draw_scene(axes: Axes, figure: SceneFigure) -> None:
    from matplotlib.collections import LineCollection

    points = 72 * _WIDTH / max(figure.width, 1.0)  # points for a pixel of the page
    strokes = LineCollection(
        [((one.x0, one.y0), (one.x1, one.y1)) for one in figure.strokes],
        colors=[_hex(one.colour) for one in figure.strokes],
        linewidths=[one.width * points for one in figure.strokes],
        alpha=[min(1.0, max(0.0, one.opacity)) for one in figure.strokes],
    )
    axes.add_collection(strokes)
    marks = figure.marks
    axes.scatter(
        [one.x for one in marks], [one.y for one in marks], s=[(one.size * points) ** 2 for one in marks],
        c=[_hex(one.colour) for one in marks], linewidths=0, zorder=2,
    )  # fmt: skip
    for one in marks:
        if one.label:
            axes.annotate(_plain(one.label), (one.x, one.y), fontsize=7, ha="center", va="center")
    axes.set(xlim=(0, figure.width), ylim=(figure.height, 0), aspect="equal")
    axes.axis("off")


def _hex(colour: str) -> str:
    if colour.startswith("#"):
        return colour
    red, green, blue = (min(255, int(part)) for part in colour[4:-1].split(","))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _plain(text: str) -> str:
    """Return a text in which no "$" begins a formula."""
    return text.replace("$", r"\$")
