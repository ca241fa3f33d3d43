"""Facts of a program: positions of regions, resolved edges and columns of ports, as arrays.

All defaults are resolved here: rules, write modes, carriers, meters, and the frames that edges with a lag read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.edge import BY_OPERATOR, Edge, Write
from volumetric.program.layer.edge_masks import mask_of
from volumetric.program.layer.frames import EdgePart, parts_of
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import Out, Port, width_of
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.region import Canvas, Carrier, Region
from volumetric.program.layer.region_learning import Learning

METERED: tuple[Carrier, ...] = ("residual", "filter")
"""Carriers with an error, whose regions have a meter by default."""


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A resolved region.

    Attributes
    ----------
    name, index : name and index of the region
    region : declaration
    positions : its positions on the canvas, ascending, int64 ``[n]``
    coords : their coordinates, frame first, int64 ``[n, axes]``
    carrier : its carrier; with parity ``"deterministic"``, unless it is a constant
    rows : number of rows that its readers see: positions, rows of a memory, or slots
    through : kind of these rows: ``"positions"``, ``"memory"`` (or a constant with `Region.slots`), or ``"slots"``
    meter : meter of its error, if any
    learning : its own losses, if any; none with parity, because the package has no equations for losses
    """

    name: str
    index: int
    region: Region
    positions: Array
    coords: Array
    carrier: Carrier
    rows: int
    through: str
    meter: Meter | None
    learning: Learning | None


@dataclass(frozen=True, eq=False, slots=True)
class Wire:
    """A resolved edge.

    Attributes
    ----------
    name, index : name and index of the edge; the highest index wins among edges that replace
    edge : declaration
    reads, writes : indices of its regions
    rule, write, weight, heads : resolved settings
    shape : number of positions that it writes, and of rows that it reads
    mask : which positions attend to which rows, bool of this shape; None: no mask
    parts : parts that are computed separately, each with a share of the result; a single part unless the edge has a lag
        and the canvas holds a window
    shares : sum of the shares of the parts in which a written position has a key, float64 ``[written]``; 0: the edge
        does not write the position and does not count there
    """

    name: str
    index: int
    edge: Edge
    reads: int
    writes: int
    rule: str
    write: Write
    weight: float
    heads: int
    shape: tuple[int, int]
    mask: Array | None
    parts: tuple[EdgePart, ...]
    shares: Array


@dataclass(frozen=True, eq=False)
class Facts:
    """A program as arrays. Do not write to them.

    Attributes
    ----------
    program : declaration
    places : regions in order
    wires : edges in order
    writers : for each region the edges that write it, in order
    inputs, outputs : port → its columns of the input row, or of the output row
    families : distinct families of regions, in the order of regions
    """

    program: Program
    places: tuple[Place, ...]
    wires: tuple[Wire, ...]
    writers: tuple[tuple[int, ...], ...]
    inputs: Mapping[str, slice]
    outputs: Mapping[str, slice]
    families: tuple[str, ...]

    def place(self, name: str) -> Place:
        """Return a region by name."""
        return self.places[self.numbers[name]]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Name of a region → its index."""
        return {place.name: place.index for place in self.places}

    @cached_property
    def codes(self) -> Array:
        """Code of each position, float64 ``[positions, width]``; see `code_of`."""
        return _read_only(code_of(self.program.canvas))


@lru_cache(maxsize=32)
def facts_of(program: Program) -> Facts:
    """Return the facts of a program.

    Raises
    ------
    SpecError : a mask does not fit its edge, an edge reads frames of a region without frames, or a size is too large
    """
    canvas = program.canvas
    check_sizes(program)
    meters = {meter.region: meter for meter in program.meters}
    places = tuple(
        _place(program, name, number, region, meters.get(name))
        for number, (name, region) in enumerate(canvas.regions.items())
    )
    by_name = {place.name: place for place in places}
    wires = tuple(
        _wire(program, number, edge, by_name[edge.reads], by_name[edge.writes])
        for number, edge in enumerate(program.edges)
    )
    writers: list[list[int]] = [[] for _ in places]
    for wire in wires:
        writers[wire.writes].append(wire.index)
    return Facts(
        program=program,
        places=places,
        wires=wires,
        writers=tuple(map(tuple, writers)),
        inputs=_columns({name: port for name, port in program.ports.items() if not isinstance(port, Out)}),
        outputs=_columns({name: port for name, port in program.ports.items() if isinstance(port, Out)}),
        families=tuple(dict.fromkeys(region.family for region in canvas.regions.values())),
    )


def rule_of_edge(program: Program, edge: Edge) -> str:
    """Return the rule of an edge: its own, that of its operator, that of the region it writes, or cross."""
    return (
        edge.rule or BY_OPERATOR.get(edge.operator, (None,))[0] or program.canvas.regions[edge.writes].rule or "cross"
    )


def write_of_edge(edge: Edge) -> Write:
    """Return the write mode of an edge: its own, or that of its operator."""
    return edge.write or BY_OPERATOR.get(edge.operator, (None, "add"))[1]


def code_of(canvas: Canvas) -> Array:
    """Return the sinusoids of all positions, float64 ``[positions, width]``.

    Each axis, frames first, has ``width // axes`` numbers, the last axis also the rest. Of n numbers, number 2 i is
    ``sin(x · 10000^(-2 i / n))`` and 2 i + 1 its cosine (Vaswani et al. 2017), where x is the coordinate.
    """
    axes = len(canvas.sides)
    each = canvas.width // axes
    widths = [*[each] * (axes - 1), canvas.width - each * (axes - 1)]
    columns = []
    for axis, (side, width) in enumerate(zip(canvas.sides, widths, strict=True)):
        angle = np.arange(side)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / max(width, 1))
        code = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(side, -1)[:, :width]
        shape = [1] * axes
        shape[axis] = side
        columns.append(np.broadcast_to(code.reshape(*shape, width), (*canvas.sides, width)))
    return np.concatenate(columns, -1).reshape(canvas.positions, canvas.width)


def _place(program: Program, name: str, number: int, region: Region, meter: Meter | None) -> Place:
    ranges = [np.arange(low, high) for low, high in region.box]
    coords = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, len(ranges))
    positions = np.ravel_multi_index(list(coords.T), program.canvas.sides).astype(np.int64)
    carrier: Carrier = "deterministic" if program.parity and region.carrier != "constant" else region.carrier
    rows, through = len(positions), "positions"
    if region.identity is not None:
        rows, through = region.identity.capacity, "slots"
    elif carrier == "memory" or (carrier == "constant" and region.slots is not None):
        rows, through = region.slots or len(positions), "memory"
    if meter is None and carrier in METERED:
        meter = Meter(name)
    if meter is not None and not meter.kinds:
        meter = None
    learning = None if program.parity else region.learning
    return Place(
        name, number, region, _read_only(positions), _read_only(coords), carrier, rows, through, meter, learning
    )


def _wire(program: Program, number: int, edge: Edge, reads: Place, writes: Place) -> Wire:
    """Return an edge with its mask and parts as arrays; raise `SpecError` for a lag or mask without positions."""
    what = f"edge {edge.name!r}"
    shape = len(writes.positions), reads.rows
    framed = edge.lag is not None and program.timing == "window"
    if reads.through != "positions" and (framed or edge.mask is not None):
        of = "a lag" if framed else "a mask"
        raise SpecError(
            f"{what}: {of} needs positions, but {reads.name!r} is read through {reads.rows} rows of {reads.through}",
            hint="remove it, or read a region without slots",
        )
    check_edge(program, edge, rule_of_edge(program, edge), shape)
    mask = mask_of(edge.mask, writes.coords, reads.coords, what)
    if framed:
        assert edge.lag is not None
        periods = writes.region.period, reads.region.period
        parts = parts_of(edge, writes.coords[:, 0], reads.coords[:, 0], periods)
    else:
        parts = (EdgePart(_read_only(np.arange(shape[0])), _read_only(np.arange(shape[1])), 1.0),)
    return Wire(
        name=edge.name or "",
        index=number,
        edge=edge,
        reads=reads.index,
        writes=writes.index,
        rule=rule_of_edge(program, edge),
        write=write_of_edge(edge),
        weight=edge.weight,
        heads=edge.heads or program.heads,
        shape=shape,
        mask=None if mask is None else _read_only(mask),
        parts=parts,
        shares=_read_only(_shares(shape[0], parts, mask)),
    )


def _shares(count: int, parts: Sequence[EdgePart], mask: Array | None) -> Array:
    shares = np.zeros(count)
    for part in parts:
        visible = np.ones(len(part.written), bool) if mask is None else mask[np.ix_(part.written, part.read)].any(1)
        shares[part.written[visible]] += part.share
    return shares


def _columns(ports: Mapping[str, Port]) -> dict[str, slice]:
    ends = np.cumsum([width_of(port) for port in ports.values()], dtype=np.int64).tolist()
    return {name: slice(end - width_of(port), end) for end, (name, port) in zip(ends, ports.items(), strict=True)}


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array


MOST_PAIRS = 2**28
"""Maximum number of pairs of positions with scores or a mask, per edge."""
MOST_MASKED = 2**31
"""Maximum number of pairs in all masks of a program: a byte each."""
MOST_PLACED = 2**26
"""Maximum number of positions of all regions; a position of several regions counts for each."""
MOST_KEPT = 2**33
"""Maximum number of values of earlier steps that an edge of a stream reads."""
MOST_WEIGHTS = 2**32
"""Maximum number of parameter values."""
PAIRWISE = ("cross", "cosine", "sigmoid", "gated", "sparse", "local", "random_fixed", "mixture", "mamba")
"""Rules with a score for each pair of positions."""


def check_sizes(program: Program) -> None:
    """Raise `SpecError` for sizes that would exhaust memory, before allocation."""
    sizes = {name: of.size for name, of in program.canvas.regions.items()}
    placed, axes = sum(sizes.values()), len(program.canvas.sides)
    if placed > MOST_PLACED:
        raise SpecError(
            f"regions hold {placed:,} positions together, which would take {8 * (axes + 1) * placed / 2**30:,.1f} GiB; "
            f"at most {MOST_PLACED:,} are possible",
            hint="use smaller regions, or fewer that overlap",
        )
    masked = sum(sizes[edge.writes] * sizes[edge.reads] for edge in program.edges if edge.mask is not None)
    if masked > MOST_MASKED:
        raise SpecError(
            f"masks of all edges would take {masked / 2**30:,.1f} GiB; {MOST_MASKED / 2**30:,.0f} GiB are possible",
            hint="use smaller regions, or fewer masks",
        )


def check_weights(params: Sequence[ParamSpec]) -> None:
    """Raise `SpecError` for parameters that would exhaust memory."""
    sizes = {one.name: prod(one.shape) for one in params}
    total = sum(sizes.values())
    if total > MOST_WEIGHTS:
        name = max(sizes, key=sizes.__getitem__)
        raise SpecError(
            f"parameters would take {total / 2**28:,.1f} GiB, {name!r} alone {sizes[name] / 2**28:,.1f} GiB; "
            f"at most {MOST_WEIGHTS / 2**28:,.0f} GiB are possible",
            hint="use smaller options of its rule, or a narrower canvas",
        )


def check_edge(program: Program, edge: Edge, rule: str, shape: tuple[int, int]) -> None:
    """Raise `SpecError` for an edge that would exhaust memory; `shape` is its positions written and rows read."""
    what, pairs = f"edge {edge.name!r}", shape[0] * shape[1]
    if pairs > MOST_PAIRS and (edge.mask is not None or rule in PAIRWISE):
        each = 1 if edge.mask is not None else 4 * (edge.heads or program.heads)
        of = "a mask" if edge.mask is not None else f"scores of rule {rule!r}"
        raise SpecError(
            f"{what}: {of} for {shape[0]:,} × {shape[1]:,} pairs would take {each * pairs / 2**30:,.1f} GiB; "
            f"at most {MOST_PAIRS:,} pairs are possible",
            hint="use smaller regions, or a rule without pairs, such as linear or pooling",
        )
    history_size = (edge.lag or 0) * shape[1] * program.canvas.width
    if program.timing == "stream" and history_size > MOST_KEPT:
        raise SpecError(
            f"{what}: a lag of {edge.lag:,} keeps {history_size / 2**28:,.1f} GiB of each stream; "
            f"{MOST_KEPT / 2**28:,.0f} GiB are possible",
            hint="use a shorter lag, or a smaller region",
        )
