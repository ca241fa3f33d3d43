"""Networks as grids: a slab for each depth with rows and columns of cells, and slots in the cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from volumetric.layers import LayerSpec
from volumetric.network import Network
from volumetric.network.grid import Coord
from volumetric.viz.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from volumetric.network.wiring import Source

_COLOURS: Final = (
    "#cfe2f3", "#fde2c5", "#d5ead0", "#e8d7f1", "#fbd5d5", "#d3eeee", "#f3ecc3", "#e3e3e3", "#d9d2c5", "#c9d7c1",
)  # fmt: skip
_CHAIN, _LINK, _IN, _OUT = "#777777", "#2166ac", "#4d8a2f", "#c76a00"
_WIDE, _LINE, _GAP, _SLANT = 1.3, 0.135, 0.2, 0.32
"""Inches: width of a cell, height of a line of text, gap between cells, and shift of each row to the left."""
_LINES, _LINKS = 9, 400
"""Maximum number of lines of text in a cell, and of links; the picture says how many are omitted."""


class _CellMiddle(NamedTuple):
    """Centre of a cell."""

    x: float
    y: float


def draw_slabs(network: Network, title: str = "network") -> Figure:
    """Draw a network's grid: slabs by depth from left to right, rows and columns in each, layers as lines of text.

    Grey arrows are the chain in reading order, blue ones links and residuals (dotted with a delay of rows or ticks),
    green and orange ones inputs and outputs. Children of containers are indented below them.
    """
    texts = _texts(network)
    high = _LINE * max(len(lines) for lines in texts.values()) + 0.14
    grid = network.grid
    slab = (
        grid.cols * (_WIDE + _GAP) + (grid.rows - 1) * _SLANT + 0.35,
        grid.rows * (high + _GAP) + 0.42,
    )
    depths = sorted({coord.z for coord in network.layers})
    across = max(1, min(len(depths), round(math.sqrt(1.5 * len(depths) * slab[1] / slab[0]))))
    lines = -(-len(depths) // across)
    figure = new_figure(width=max(across * (slab[0] + 0.5) + 0.6, 4.6), height=lines * (slab[1] + 0.25) + 0.9)
    axes = figure.add_subplot()
    origin = {z: (i % across * (slab[0] + 0.5), i // across * (slab[1] + 0.25)) for i, z in enumerate(depths)}
    places: dict[tuple[int, int, int], _CellMiddle] = {}
    kinds = list(dict.fromkeys(spec.kind for spec in network.layers.values()))
    for z in depths:
        _slab(axes, origin[z], slab, z, grid.rows)
    for cell, cell_lines in texts.items():
        z, y, x = cell
        left, top = origin[z]
        shift = (grid.rows - 1 - y) * _SLANT
        place = _CellMiddle(
            left + 0.3 + shift + x * (_WIDE + _GAP) + _WIDE / 2, top + 0.4 + y * (high + _GAP) + high / 2
        )
        places[cell] = place
        first = next(spec for coord, spec in network.layers.items() if (coord.z, coord.y, coord.x) == cell)
        _cell(axes, place, high, cell_lines, _COLOURS[kinds.index(first.kind) % len(_COLOURS)])
    left_out = _wires(axes, network, places, high)
    axes.set_xlim(-0.55, across * (slab[0] + 0.5) + 0.05)
    axes.set_ylim(lines * (slab[1] + 0.25), -0.1)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_title(f"{title}: {grid.depth} × {grid.rows} × {grid.cols} × {grid.slots}", fontsize=11)
    _legend(figure, kinds, network, left_out)
    return figure


def _texts(network: Network) -> dict[tuple[int, int, int], list[tuple[str, bool]]]:
    """Return the lines of each cell with layers, and whether each line belongs to a disabled layer."""
    texts: dict[tuple[int, int, int], list[tuple[str, bool]]] = {}
    for coord, spec in network.layers.items():
        off = coord in network.disabled
        shape = "×".join(str(size) for size in network.shapes[coord] if size > 0)
        lines = texts.setdefault((coord.z, coord.y, coord.x), [])
        lines += [(line, off) for line in _layer_lines(spec, f" → {shape}" + " (off)" * off)]
    return {
        cell: lines if len(lines) <= _LINES else [*lines[: _LINES - 1], ("…", False)] for cell, lines in texts.items()
    }


def _layer_lines(spec: LayerSpec, more: str = "", inside: int = 0) -> Iterable[str]:
    activation = getattr(spec, "activation", "linear")
    yield f"{'  ' * inside}{spec.kind}{'' if activation == 'linear' else f' {activation}'}{more}"
    for child in spec.children().values():
        yield from _layer_lines(child, inside=inside + 1)


def _slab(axes: Axes, origin: tuple[float, float], size: tuple[float, float], z: int, rows: int) -> None:
    from matplotlib.patches import Polygon

    (left, top), (wide, high) = origin, size
    slant = (rows - 1) * _SLANT
    corners = [
        (left + slant, top + 0.24),
        (left + wide, top + 0.24),
        (left + wide - slant, top + high),
        (left, top + high),
    ]
    axes.add_patch(Polygon(corners, facecolor="#f7f7fb", edgecolor="#b0b0c4", linewidth=1.0, zorder=0))
    axes.text(left + wide, top + 0.2, f"depth {z}", fontsize=8, color="#60607a", va="bottom", ha="right")


def _cell(axes: Axes, place: _CellMiddle, high: float, lines: list[tuple[str, bool]], colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (place.x - _WIDE / 2, place.y - high / 2), _WIDE, high, boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=colour, edgecolor="#444", linewidth=0.8, zorder=3,
        )
    )  # fmt: skip
    top = place.y - _LINE * (len(lines) - 1) / 2
    for i, (line, off) in enumerate(lines):
        text = line if len(line) <= 24 else f"{line[:14]}…{line[-9:]}"
        axes.text(
            place.x, top + i * _LINE, text, fontsize=6.5, ha="center", va="center", zorder=4,
            color="#999" if off else "#111",
        )  # fmt: skip


def _wires(axes: Axes, network: Network, places: Mapping[tuple[int, int, int], _CellMiddle], high: float) -> int:
    """Draw the connections between cells; return the number of omitted links."""
    before: Coord | None = None
    links: list[tuple[Source, Coord]] = []
    drawn: set[tuple[Coord, Coord]] = set()
    for wire in network.wires:
        for source in wire.inputs if wire.skip is None else (*wire.inputs, wire.skip):
            if source.coord is not None and source.coord == before and not source.delay:
                _arrow(axes, places, high, source.coord, wire.coord, color=_CHAIN, linewidth=0.9, alpha=0.75)
                drawn.add((_first(source.coord), _first(wire.coord)))
            elif source.coord is not None:
                links.append((source, wire.coord))
        before = wire.coord
    for source, target in links[:_LINKS]:
        assert source.coord is not None
        if (_first(source.coord), _first(target)) in drawn and not source.delay:
            continue
        style = {"linestyle": ":" if source.delay else "-", "color": _LINK, "linewidth": 0.8, "alpha": 0.55}
        _arrow(axes, places, high, source.coord, target, bend=0.25, **style)
    for name, port in network.ports.items():
        _end(axes, places[port.coord.z, port.coord.y, port.coord.x], high, name, _IN, inwards=True)
    for name, coord in network.taps.items():
        _end(axes, places[coord.z, coord.y, coord.x], high, name, _OUT, inwards=False)
    return max(0, len(links) - _LINKS)


def _first(coord: Coord) -> Coord:
    """Return the place of a cell, regardless of the slot."""
    return Coord(coord.z, coord.y, coord.x)


def _arrow(
    axes: Axes, places: Mapping[tuple[int, int, int], _CellMiddle], high: float, source: Coord, target: Coord, *,
    bend: float = 0.0, **style: Any,
) -> None:  # fmt: skip
    from matplotlib.patches import FancyArrowPatch

    a, b = places[source.z, source.y, source.x], places[target.z, target.y, target.x]
    if a == b:  # from slot to slot: only in the text
        return
    beside = abs(a.y - b.y) < high / 2 and 0 < b.x - a.x < _WIDE + 2 * _GAP
    if beside:
        start, end = (a.x + _WIDE / 2, a.y), (b.x - _WIDE / 2, b.y)
    elif abs(a.y - b.y) < high / 2:  # along a row, in an arc over the cells between
        start, end, bend = (a.x, a.y - high / 2), (b.x, b.y - high / 2), -0.2 if b.x > a.x else 0.2
    else:
        down = 1 if b.y > a.y else -1
        start, end = (a.x, a.y + down * high / 2), (b.x, b.y - down * high / 2)
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=7, shrinkA=0, shrinkB=0, zorder=2,
            connectionstyle=f"arc3,rad={0.0 if beside else bend}", **style,
        )
    )  # fmt: skip


def _end(axes: Axes, place: _CellMiddle, high: float, name: str, colour: str, *, inwards: bool) -> None:
    """Draw an input or output of the network at the upper left, or lower right, corner of a cell."""
    side = -1 if inwards else 1
    corner = (place.x + side * (_WIDE / 2 - 0.04), place.y + side * (high / 2 - 0.03))
    beyond = (corner[0] + side * 0.2, corner[1] + side * 0.13)
    start, end = (beyond, corner) if inwards else (corner, beyond)
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=style, zorder=5)
    axes.text(
        beyond[0], beyond[1] + side * 0.03, name, fontsize=7, color=colour, zorder=5,
        ha="right" if inwards else "left", va="bottom" if inwards else "top",
    )  # fmt: skip


def _legend(figure: Figure, kinds: list[str], network: Network, left_out: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = [
        Patch(facecolor=_COLOURS[i % len(_COLOURS)], edgecolor="#444", label=kind) for i, kind in enumerate(kinds[:12])
    ]
    marks += [Line2D([], [], color=_CHAIN, label="chain"), Line2D([], [], color=_IN, label="input")]
    marks += [Line2D([], [], color=_OUT, label="output")]
    if any(len(wire.inputs) > 1 or wire.skip is not None for wire in network.wires):
        note = f" ({left_out:,} more are not drawn)" if left_out else ""
        marks.append(Line2D([], [], color=_LINK, label=f"link or residual, dotted with a delay{note}"))
    columns = max(1, min(len(marks), int(figure.get_figwidth() / 1.7)))
    figure.legend(handles=marks, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
