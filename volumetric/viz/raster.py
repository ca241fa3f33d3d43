"""Raster of a program's firing over time: a line for each region and edge, a column for each row, meters below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.observe.firing import Firing
from volumetric.program.layer.program_facts import facts_of
from volumetric.viz.figure import new_figure
from volumetric.viz.program_arrows import rule_colour
from volumetric.viz.program_sheet import family_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HIGH, _WIDE = 0.155, 9.0
_CURVES: Final = ("#1b4f9c", "#b3411b", "#2e7d32", "#7b1fa2", "#00796b", "#9e7700")


@dataclass(frozen=True)
class _RasterLine:
    """A line of the raster: name, colour, and number of computations in each row."""

    name: str
    colour: str
    counts: Array


def draw_firing(
    firing: Firing, title: str = "what fired", *, stream: int = 0, meters: Sequence[str] | None = None, most: int = 60
) -> Figure:
    """Draw when regions and edges computed, for one stream.

    A mark means one computation in a row, a darker one several. At the right is the share of rows. Dotted lines are
    resets of the stream. Regions have the colours of `draw_program`'s families, darker; edges those of its rules.

    Parameters
    ----------
    stream : index of the stream
    meters : meters to draw as curves below, ``region.kind``; None: those that some clock or condition reads
    most : maximum number of regions, and of edges, to draw: those that fired least often; a heading has the number of
        the others

    Raises
    ------
    SpecError : the stream or a meter does not exist
    UnsupportedError : matplotlib is not installed
    """
    batch, rows, _ = firing.regions.shape
    if not 0 <= stream < batch:
        raise SpecError(f"there is no stream {stream}", hint=f"streams are 0 … {batch - 1}")
    shown = _read_meters(firing) if meters is None else list(meters)
    for name in shown:
        if name not in firing.meters:
            raise SpecError(f"there is no meter {name!r}", hint="there are " + (", ".join(firing.meters) or "none"))
    parts = [
        (_HIGH * len(lines) + 0.15, lines, f"{what}; {left_out:,} more fired as often or more" if left_out else what)
        for what, (lines, left_out) in (
            ("regions", _fewest(_regions(firing, stream), most)),
            ("edges", _fewest(_edges(firing, stream), most)),
        )
        if lines
    ]
    heights = [high for high, _, _ in parts] + ([1.1] if shown else [])
    figure = new_figure(width=_WIDE, height=sum(heights) + 0.45 * len(heights) + 0.5)
    plots: list[Axes] = [
        *np.ravel(figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}))
    ]
    for plot, (_, lines, what) in zip(plots, parts, strict=False):
        _raster(plot, lines, rows)
        plot.set_title(what, fontsize=8, loc="left")
    if shown:
        _curves(plots[-1], firing, stream, shown, rows)
    for plot in plots:
        for at in np.flatnonzero(firing.resets[stream]).tolist():
            plot.axvline(at - 0.5, color="#666666", lw=0.8, ls=":")
    plots[-1].set_xlabel("row", fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def _regions(firing: Firing, stream: int) -> list[_RasterLine]:
    colours = family_colours(firing.program)
    return [
        _RasterLine(name, _deep_colour(colours[region.family]), firing.regions[stream, :, i])
        for i, (name, region) in enumerate(firing.program.canvas.regions.items())
    ]


def _edges(firing: Firing, stream: int) -> list[_RasterLine]:
    wires = facts_of(firing.program).wires
    return [_RasterLine(wire.name, rule_colour(wire.rule), firing.edges[stream, :, wire.index]) for wire in wires]


def _fewest(lines: list[_RasterLine], most: int) -> tuple[list[_RasterLine], int]:
    """Return the lines that fired least often, in the order of `lines`, and the number of others."""
    often = np.array([(line.counts > 0).sum() for line in lines], np.int64)
    chosen = sorted(np.argsort(often, kind="stable")[:most].tolist())
    return [lines[i] for i in chosen], len(lines) - len(chosen)


def _read_meters(firing: Firing) -> list[str]:
    """Return the meters that clocks and conditions read."""
    program = firing.program
    texts = [region.clock for region in program.canvas.regions.values()] + [edge.when for edge in program.edges]
    return [name for name in firing.meters if any(name in text for text in texts if text)]


def _raster(plot: Axes, lines: Sequence[_RasterLine], rows: int) -> None:
    from matplotlib.colors import to_rgb

    picture = np.full((len(lines), rows, 3), 0.965)
    for i, line in enumerate(lines):
        top = max(int(line.counts.max(initial=0)), 1)
        part = np.where(line.counts > 0, 0.45 + 0.55 * line.counts / top, 0.0) if top > 1 else line.counts > 0
        picture[i] += (np.array(to_rgb(line.colour)) - picture[i]) * np.asarray(part, np.float64)[:, None]
    if rows:
        smooth: Any = "antialiased" if rows > 1500 else "nearest"
        plot.imshow(picture, aspect="auto", interpolation=smooth, extent=(-0.5, rows - 0.5, len(lines) - 0.5, -0.5))
    for i in range(1, len(lines)):
        plot.axhline(i - 0.5, color="white", lw=1.0)
    plot.set_yticks(range(len(lines)), [_shorten_name(line.name) for line in lines], fontsize=6.5)
    plot.tick_params(axis="x", labelsize=7)
    plot.tick_params(axis="y", length=0)
    for i, line in enumerate(lines):
        share = f"{(line.counts > 0).mean():.0%}" if rows else ""
        plot.text(1.005, i, share, transform=plot.get_yaxis_transform(), fontsize=6.5, va="center", color="#444444")
    plot.spines[:].set_visible(False)


def _curves(plot: Axes, firing: Firing, stream: int, names: Sequence[str], rows: int) -> None:
    for i, name in enumerate(names):
        plot.plot(np.arange(rows), firing.meters[name][stream], lw=1.0, color=_CURVES[i % len(_CURVES)], label=name)
    plot.set_title("meters", fontsize=8, loc="left")
    plot.tick_params(labelsize=7)
    plot.spines[["top", "right"]].set_visible(False)
    plot.grid(axis="y", color="#e5e5e5", lw=0.6)
    plot.legend(fontsize=6.5, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4)


def _shorten_name(name: str, most: int = 34) -> str:
    half = most // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def _deep_colour(colour: str) -> str:
    """Return a colour of the same hue, as strong as those of rules."""
    import colorsys

    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, _, saturation = colorsys.rgb_to_hls(r, g, b)
    rgb = colorsys.hls_to_rgb(hue, 0.4, min(0.75, saturation * 1.2))
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
