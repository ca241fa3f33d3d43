"""What a program comes to: positions of regions, resolved edges, columns of ports, as plain arrays.

Nothing of a program that is left to defaults is left open here: rules, ways of writing, carriers, meters and the frames
that edges with a lag read are as they act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers.base import ParamSpec
from volumetric.program.layer.declared import Program
from volumetric.program.layer.edge import BY_OPERATOR, Edge, Write
from volumetric.program.layer.frames import Part, parts_of
from volumetric.program.layer.learning import Learning
from volumetric.program.layer.masks import mask_of
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import Out, Port, width_of
from volumetric.program.layer.region import Canvas, Carrier, Region

METERED: tuple[Carrier, ...] = ("residual", "filter")
"""Carriers that have an error, so that their regions have a meter without being given one."""


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A region, as it acts.

    Attributes
    ----------
    name, index : its name, and its number among regions
    region : as declared
    positions : its positions on the canvas, rising, int64 ``[n]``
    coords : where they are, frame first, int64 ``[n, axes]``
    carrier : by which it changes; of a program with parity ``"deterministic"``, unless it is a constant
    rows : how many rows those see that read it: positions, rows of a memory, or slots
    through : what they are: ``"positions"``, ``"memory"`` (or a constant that has `Region.slots`), or ``"slots"``
    meter : of its error, if it has one
    learning : by which losses of its own it learns, if it does; in a program with parity none does, for the package has
        names of losses and no equations
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
    """An edge, as it acts.

    Attributes
    ----------
    name, index : its name, and its number among edges, by which of several that replace the last one wins
    edge : as declared
    reads, writes : numbers of its regions
    rule, write, weight, heads : what it does
    shape : how many positions it writes, and how many rows it reads
    mask : which of the first look at which of the second, bool of this shape; None: all at all
    parts : what is computed apart, each with a share of the result; one of everything unless the edge has a lag and the
        canvas holds its window
    shares : sum of the shares of the parts that a written position has a key in, float64 ``[written]``; 0: the edge
        does not write it and is not counted there
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
    parts: tuple[Part, ...]
    shares: Array


@dataclass(frozen=True, eq=False)
class Facts:
    """A program as plain arrays, which are not to be written to.

    Attributes
    ----------
    program : as declared
    places : regions in order
    wires : edges in order
    writers : for each region the edges that write it, in order
    inputs, outputs : port → its columns of the row that comes in, or goes out
    families : words for what regions hold, each once, in the order of regions
    """

    program: Program
    places: tuple[Place, ...]
    wires: tuple[Wire, ...]
    writers: tuple[tuple[int, ...], ...]
    inputs: Mapping[str, slice]
    outputs: Mapping[str, slice]
    families: tuple[str, ...]

    def place(self, name: str) -> Place:
        """Return the region of a name."""
        return self.places[self.numbers[name]]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Name of a region → its number."""
        return {place.name: place.index for place in self.places}

    @cached_property
    def codes(self) -> Array:
        """Code of each position, float64 ``[positions, width]``; see `code_of`."""
        return _fixed(code_of(self.program.canvas))


@lru_cache(maxsize=32)
def facts_of(program: Program) -> Facts:
    """Return what a program comes to.

    Raises
    ------
    SpecError : a mask does not fit its edge; an edge reads frames of what has none; something would be too large
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
    """Return how an edge writes: its own way, or that of its operator."""
    return edge.write or BY_OPERATOR.get(edge.operator, (None, "add"))[1]


def code_of(canvas: Canvas) -> Array:
    """Return the sinusoids of all positions, float64 ``[positions, width]``.

    Each axis, frames first, has ``width // axes`` numbers and the last one the rest: of n of them number 2 i is
    ``sin(x · 10000^(-2 i / n))`` and 2 i + 1 its cosine (Vaswani et al. 2017), x being the coordinate.
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
    return Place(name, number, region, _fixed(positions), _fixed(coords), carrier, rows, through, meter, learning)


def _wire(program: Program, number: int, edge: Edge, reads: Place, writes: Place) -> Wire:
    """Return an edge with its mask and parts as arrays; refuse a lag or mask where no positions are read."""
    what = f"edge {edge.name!r}"
    shape = len(writes.positions), reads.rows
    framed = edge.lag is not None and program.timing == "window"
    if reads.through != "positions" and (framed or edge.mask is not None):
        of = "a lag" if framed else "a mask"
        raise SpecError(
            f"{what}: {of} is about positions, but {reads.name!r} is read through {reads.rows} rows of {reads.through}",
            hint=f"leave {of} out, or read a region without slots",
        )
    check_edge(program, edge, rule_of_edge(program, edge), shape)
    mask = mask_of(edge.mask, writes.coords, reads.coords, what)
    if framed:
        assert edge.lag is not None
        periods = writes.region.period, reads.region.period
        parts = parts_of(edge, writes.coords[:, 0], reads.coords[:, 0], periods)
    else:
        parts = (Part(_fixed(np.arange(shape[0])), _fixed(np.arange(shape[1])), 1.0),)
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
        mask=None if mask is None else _fixed(mask),
        parts=parts,
        shares=_fixed(_shares(shape[0], parts, mask)),
    )


def _shares(count: int, parts: Sequence[Part], mask: Array | None) -> Array:
    shares = np.zeros(count)
    for part in parts:
        visible = np.ones(len(part.written), bool) if mask is None else mask[np.ix_(part.written, part.read)].any(1)
        shares[part.written[visible]] += part.share
    return shares


def _columns(ports: Mapping[str, Port]) -> dict[str, slice]:
    ends = np.cumsum([width_of(port) for port in ports.values()], dtype=np.int64).tolist()
    return {name: slice(end - width_of(port), end) for end, (name, port) in zip(ends, ports.items(), strict=True)}


def _fixed(array: Array) -> Array:
    array.setflags(write=False)
    return array


MOST_PAIRS = 2**28
"""Pairs of positions that an edge has scores or a mask of, at most."""
MOST_MASKED = 2**31
"""Pairs that all masks of a program are about, at most: a byte each."""
MOST_PLACED = 2**26
"""Positions of all regions, at most: what several hold counts for each."""
MOST_KEPT = 2**33
"""Numbers of earlier steps that an edge of a stream reads, at most."""
MOST_WEIGHTS = 2**32
"""Numbers of all parameters, at most."""
PAIRWISE = ("cross", "cosine", "sigmoid", "gated", "sparse", "local", "random_fixed", "mixture", "mamba")
"""Rules that have a score for each pair of positions."""


def check_sizes(program: Program) -> None:
    """Refuse what would fill the memory before it is made."""
    sizes = {name: of.size for name, of in program.canvas.regions.items()}
    placed, axes = sum(sizes.values()), len(program.canvas.sides)
    if placed > MOST_PLACED:
        raise SpecError(
            f"regions hold {placed:,} positions together, which would take {8 * (axes + 1) * placed / 2**30:,.1f} GiB; "
            f"at most {MOST_PLACED:,} are possible",
            hint="smaller regions, or fewer that overlap",
        )
    masked = sum(sizes[edge.writes] * sizes[edge.reads] for edge in program.edges if edge.mask is not None)
    if masked > MOST_MASKED:
        raise SpecError(
            f"masks of all edges would take {masked / 2**30:,.1f} GiB; {MOST_MASKED / 2**30:,.0f} GiB are possible",
            hint="smaller regions, or fewer masks",
        )


def check_weights(params: Sequence[ParamSpec]) -> None:
    """Refuse parameters that would fill the memory."""
    sizes = {one.name: prod(one.shape) for one in params}
    total = sum(sizes.values())
    if total > MOST_WEIGHTS:
        name = max(sizes, key=sizes.__getitem__)
        raise SpecError(
            f"parameters would take {total / 2**28:,.1f} GiB, of which {name!r} {sizes[name] / 2**28:,.1f} GiB; "
            f"{MOST_WEIGHTS / 2**28:,.0f} GiB are possible",
            hint="smaller options of its rule, or a narrower canvas",
        )


def check_edge(program: Program, edge: Edge, rule: str, shape: tuple[int, int]) -> None:
    """Refuse an edge that would fill the memory; `shape` says how many positions it writes, and rows it reads."""
    what, pairs = f"edge {edge.name!r}", shape[0] * shape[1]
    if pairs > MOST_PAIRS and (edge.mask is not None or rule in PAIRWISE):
        each = 1 if edge.mask is not None else 4 * (edge.heads or program.heads)
        of = "a mask" if edge.mask is not None else f"scores of rule {rule!r}"
        raise SpecError(
            f"{what}: {of} for {shape[0]:,} × {shape[1]:,} pairs would take {each * pairs / 2**30:,.1f} GiB; "
            f"at most {MOST_PAIRS:,} pairs are possible",
            hint="smaller regions, or a rule that needs no pairs, such as linear or pooling",
        )
    history_size = (edge.lag or 0) * shape[1] * program.canvas.width
    if program.timing == "stream" and history_size > MOST_KEPT:
        raise SpecError(
            f"{what}: a lag of {edge.lag:,} keeps {history_size / 2**28:,.1f} GiB of each stream; "
            f"{MOST_KEPT / 2**28:,.0f} GiB are possible",
            hint="a shorter lag, or a smaller region",
        )
