"""Declaration of a program: a canvas, edges between its regions (explicit, or by families), and ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value, suggestion
from volumetric.base.notebook_html import drawn_bundle
from volumetric.layers.field_checks import check_choice, check_flag, check_whole, tuple_of
from volumetric.network import Network
from volumetric.program.layer.edge import BY_OPERATOR, Edge
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.name_checks import FAMILIES, Named, check_name, check_named
from volumetric.program.layer.ports import In, Level, Out, Port, Signal, width_of
from volumetric.program.layer.region import Canvas

BY_FAMILIES: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("observation", "state"): "observe",
        ("state", "observation"): "predict",
        ("state", "state"): "integrate",
        ("state", "memory"): "write",
        ("memory", "state"): "retrieve",
        ("state", "action"): "act",
        ("action", "state"): "intervene",
        ("state", "residual"): "emit_residual",
        ("observation", "residual"): "emit_residual",
        ("residual", "state"): "correct",
        **{(family, family): "attend" for family in FAMILIES if family != "state"},
    }
)
"""Families of (reads, writes) → operator."""


class Autowire(Struct, frozen=True, forbid_unknown_fields=True):
    """Placeholder in a list of edges for all edges by families.

    Attributes
    ----------
    loops : also add self-edges
    """

    loops: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        check_flag("autowire: loops", self.loops)


def operator_of(reads: str, writes: str) -> str | None:
    """Return the operator between two families, None if there is none."""
    return BY_FAMILIES.get((reads, writes), "attend" if reads == writes else None)


def expand_edges(canvas: Canvas, entries: Iterable[Edge | Autowire]) -> Iterator[Edge]:
    """Yield edges; an `Autowire` yields edges by families between pairs that no other edge joins.

    None of these writes a constant, and none replaces results of others: an edge whose operator replaces adds instead
    if it is an *intervene*, or if several edges would replace the same region.
    """
    edges = list(entries)
    joined = {(edge.reads, edge.writes) for edge in edges if isinstance(edge, Edge)}
    for edge in edges:
        if isinstance(edge, Edge):
            yield edge
            continue
        for writes, to in canvas.regions.items():
            if to.carrier == "constant":
                continue
            for reads, source in canvas.regions.items():
                operator = operator_of(source.family, to.family)
                free = (reads, writes) not in joined and (edge.loops or reads != writes)
                if operator is not None and free:
                    joined.add((reads, writes))
                    yield Edge(reads=reads, writes=writes, operator=operator, write=_write(canvas, operator, writes))


def _write(canvas: Canvas, operator: str, writes: str) -> Literal["add"] | None:
    """Return the write mode of an edge by families, None: that of its operator."""
    if BY_OPERATOR.get(operator, (None, "add"))[1] != "replace":
        return None
    of, family = canvas.regions, canvas.regions[writes].family
    rivals = sum(operator_of(source.family, family) == operator for source in of.values())
    return "add" if operator == "intervene" or rivals > 1 else None


VERSION = 1
MOST_EDGES = 100_000


class Program(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, cache_hash=True):
    """Declaration of a program.

    Attributes
    ----------
    canvas : regions and their places
    edges : edges in order; an `Autowire` among them is replaced by edges by families
    ports : inputs and outputs by name; columns of a row are in their order
    version : version of the format, 1
    meters : running summaries of errors; regions with carrier ``"residual"`` or ``"filter"`` have one by default
    time : ``"window"``: the canvas holds all its frames and runs once per row; ``"stream"``: it holds the latest frame,
        and rows are consecutive frames; None: a stream if it has one frame
    heads : default number of attention heads of edges
    share : parameters belong to each ``"edge"``, or all edges of a ``"rule"`` share one set
    parity : compute like the package canvas-engineering if it differs: a position with only gated writes loses its
        content, edges of rule none count, and carriers and losses have no equations
    metadata : free text for people and tools
    """

    canvas: Canvas
    edges: tuple[Edge, ...] = ()
    ports: Mapping[str, Port] = Named()
    version: int = VERSION
    meters: tuple[Meter, ...] = ()
    time: Literal["window", "stream"] | None = None
    heads: int = 4
    share: Literal["edge", "rule"] = "edge"
    parity: bool = False
    metadata: Mapping[str, str] = Named()

    if TYPE_CHECKING:  # also accepts lists, and edges by families

        def __init__(
            self,
            canvas: Canvas,
            edges: Sequence[Edge | Autowire] = (),
            ports: Mapping[str, Port] = ...,
            version: int = ...,
            meters: Sequence[Meter] = (),
            time: Literal["window", "stream"] | None = None,
            heads: int = 4,
            share: Literal["edge", "rule"] = "edge",
            parity: bool = False,
            metadata: Mapping[str, str] = ...,
        ) -> None: ...

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the drawing of the program for notebooks, beside its text."""
        return drawn_bundle("program", self)

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.canvas, Canvas):
            raise SpecError(f"a program: canvas must be a Canvas, got {format_value(self.canvas)}")
        if not isinstance(self.version, int) or isinstance(self.version, bool) or self.version != VERSION:
            raise SpecError(
                f"a program: version {format_value(self.version)} is unknown",
                hint=f"versions up to {VERSION} are supported",
            )
        force_setattr(self, "version", VERSION)
        check_whole("a program: heads", self.heads)
        if self.time is not None:
            check_choice("a program: time", self.time, ("window", "stream"))
        check_choice("a program: share", self.share, ("edge", "rule"))
        check_flag("a program: parity", self.parity)
        force_setattr(self, "metadata", check_named("a program: metadata", self.metadata, str))
        force_setattr(self, "edges", self._edges())
        force_setattr(self, "meters", self._meters())
        force_setattr(self, "ports", self._ports())

    def to_json(self) -> str:
        """Return the program as text; equal programs have equal texts."""
        from volumetric.program.layer.text import program_to_json

        return program_to_json(self)

    @staticmethod
    def from_json(text: str | bytes) -> Program:
        """Parse a program from text; errors are `SpecError`s that name the place."""
        from volumetric.program.layer.text import program_from_json

        return program_from_json(text)

    @property
    def timing(self) -> Literal["window", "stream"]:
        """`time`, or its default by the number of frames."""
        return self.time or ("stream" if self.canvas.frames == 1 else "window")

    @property
    def inputs(self) -> dict[str, In | Level | Signal]:
        """Ports with columns of the input row, in order."""
        return {name: port for name, port in self.ports.items() if not isinstance(port, Out)}

    @property
    def outputs(self) -> dict[str, Out]:
        """Ports with columns of the output row, in order."""
        return {name: port for name, port in self.ports.items() if isinstance(port, Out)}

    def network(self) -> Network:
        """Return a `Network` of this program alone; its rows are all ports, concatenated.

        Raises
        ------
        SpecError : there is no input or no output port, or a clock reads an unknown name
        """
        from volumetric.program.layer.program_layer import Program as Layer

        width = sum(map(width_of, self.inputs.values()))
        return Network(layers=[Layer(program=self)], input_shape=(width,), input_dtype="float32")

    def _check_region(self, region: str, what: str) -> None:
        if region not in self.canvas.regions:
            regions = self.canvas.regions
            hint = suggestion(region, regions, f"there are {format_value(', '.join(regions))}")
            raise SpecError(f"{what}: there is no region {region!r}", hint=hint)

    def _edges(self) -> tuple[Edge, ...]:
        if self.timing == "stream" and self.canvas.frames != 1:
            raise SpecError(
                f"a program: a stream needs a canvas of 1 frame, this one has {self.canvas.frames}",
                hint='use frames=1, or time="window"',
            )
        entries = tuple_of("a program: edges", self.edges, (Edge, Autowire))
        for edge in entries:
            if isinstance(edge, Edge):
                self._check_region(edge.reads, f"an edge that writes {edge.writes!r}")
                self._check_region(edge.writes, f"an edge that reads {edge.reads!r}")
        edges = _named_edges(self._check_edge_count(expand_edges(self.canvas, entries)))
        for edge in edges:
            heads = edge.heads or self.heads
            if self.canvas.width % heads:
                raise SpecError(f"edge {edge.name!r}: {heads} heads do not divide a width of {self.canvas.width}")
            if edge.lag is not None and edge.lag < 0 and self.timing == "stream":
                raise SpecError(
                    f"edge {edge.name!r}: a lag of {edge.lag} reads future rows, which a stream does not have"
                )
        return edges

    def _check_edge_count(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return all edges; raise `SpecError` if there are too many."""
        collected: list[Edge] = []
        for edge in edges:
            collected.append(edge)
            if len(collected) > MOST_EDGES:
                refuse_edges(len(collected), self.canvas.width)
        return collected

    def _meters(self) -> tuple[Meter, ...]:
        meters = tuple_of("a program: meters", self.meters, Meter)
        for meter in meters:
            self._check_region(meter.region, "a meter")
        twice = [name for name, count in Counter(meter.region for meter in meters).items() if count > 1]
        if twice:
            raise SpecError(f"a program: region {twice[0]!r} has two meters", hint="declare one meter with all kinds")
        return meters

    def _ports(self) -> Named[Port]:
        ports = check_named("a program: ports", self.ports, (In, Level, Signal, Out))
        for name, port in ports.items():
            check_name("a port", name)
            if isinstance(port, Signal):
                continue
            self._check_region(port.region, f"port {name!r}")
            carrier = self.canvas.regions[port.region].carrier
            if isinstance(port, Level) and carrier != "diffusive":
                raise SpecError(f"port {name!r}: region {port.region!r} has carrier {carrier!r}, not 'diffusive'")
        return ports


def refuse_edges(count: int, width: int) -> None:
    """Raise `SpecError` for too many edges, with the memory of their weights."""
    width = min(max(width, 1), 2**16)
    gib = 4 * count * 4 * (width * width + width) / 2**30
    raise SpecError(
        f"a program of {count:,} edges would take {gib:,.1f} GiB for the weights of attention of width {width}; "
        f"at most {MOST_EDGES:,} edges are possible",
        hint="use larger regions with fewer edges",
    )


def _named_edges(edges: list[Edge]) -> tuple[Edge, ...]:
    """Return the edges with unique names."""
    used_names = {edge.name for edge in edges if edge.name is not None}
    if len(used_names) != sum(edge.name is not None for edge in edges):
        twice = [name for name, count in Counter(edge.name for edge in edges).items() if name and count > 1]
        raise SpecError(f"a program: two edges are called {twice[0]!r}", hint="use unique names, or none")
    next_of: Counter[str] = Counter()
    named_edges: list[Edge] = []
    for edge in edges:
        name = edge.name
        while name is None:
            pair = f"{edge.writes}<{edge.reads}"
            free = f"{pair}#{next_of[pair]}"
            next_of[pair] += 1
            name = None if free in used_names else free
        used_names.add(name)
        named_edges.append(edge if edge.name else replace(edge, name=name))
    return tuple(named_edges)
