"""Clocked: a network as a machine in which every layer computes at each tick from what the tick before left.

At tick τ, with everything that is read being of the tick before, but for the rows that arrive at inputs:

- an input holds the row that it was given at this tick; without one, the last row, or zeros (`Clocked.hold`)
- a layer reads the sum of the output of the layer before it in reading order, of its links, and of its inputs, in this
  order; a link or an input that says ``"replace"`` takes the place of the first. Over a link comes what its source made
  ``max(1, delay)`` ticks ago
- a layer that fires replaces its output and its states; one that does not (by its clock, or too early in a
  ``"wavefront"``) keeps both. A disabled one passes on what it reads, a tick later. What a clock watches is of
  the tick before in layers, and what they hold now in inputs
- outputs are read after the tick. A reset sets all that a stream keeps to the start, before anything else

Systolic arrays: Kung 1982, "Why systolic architectures?".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from volumetric.base._typing import ROWS
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.base.keywords import explained
from volumetric.graph.state import bounded
from volumetric.layers import LayerSpec
from volumetric.layers.clock import Clock, Event, Inner, On
from volumetric.network import Network
from volumetric.network.grid import Coord, Link
from volumetric.network.wiring import Source, Wire, carries_ids, places_of

if TYPE_CHECKING:
    from volumetric.clocked.stream import ClockedStream
    from volumetric.network import Params

Hold = Literal["last", "zero"]
Start = Literal["zeros", "wavefront"]
LONGEST_DELAY = 4096
"""Most ticks that a link may take."""


WATCHED = ("mean", "max", "min", "rms")
"""What clocks can watch of a layer, an output or an input: over its features."""


@explained
@dataclass(frozen=True, kw_only=True)
class Clocked:
    """A network that runs tick by tick. Its inputs and outputs are those of the network, at any layer.

    Links may point anywhere, also backwards or to their own source.

    Attributes
    ----------
    network : layers, links, inputs and outputs
    clocks : layer → when it fires; a layer without one fires at every tick. Events watch one of `WATCHED` of a layer,
        an output or an input, ``"1.0.0.0.rms"``; `On` is where an input is given a row that is not all zeros
    hold : input → what it holds without a row, ``"last"`` unless told
    start : ``"zeros"``: all layers compute from the first tick on; ``"wavefront"``: each begins when the first row can
        have reached it, on the longest way that does not go backwards

    Raises
    ------
    SpecError : a clock or hold names what there is not, or a link takes more than `LONGEST_DELAY` ticks
    UnsupportedError : a layer looks at rows that a tick does not have, as attention does; the message names it
    """

    network: Network
    clocks: Mapping[Coord, Clock] = field(default_factory=dict)
    hold: Mapping[str, Hold] = field(default_factory=dict)
    start: Start = "zeros"

    def __post_init__(self) -> None:
        """Check the fields."""
        clocks = {Coord.of(coord): Clock.parse(c) if isinstance(c, str) else c for coord, c in self.clocks.items()}
        object.__setattr__(self, "clocks", MappingProxyType(clocks))
        object.__setattr__(self, "hold", MappingProxyType(dict(self.hold)))
        for coord, clock in self.clocks.items():
            if coord not in self.network.layers:
                raise SpecError(f"clock: there is no layer at {coord}", hint=places_of(self.network.layers))
            if not isinstance(clock, Clock):
                raise SpecError(
                    f"clock of the layer at {coord}: expected Every(…) or another clock, got {clock!r}",
                    hint='as Every(2), or as text, "every(2)"',
                )
            self._check_clock(coord, clock)
        for link in self.network.links:
            if link.kind == "activation" and link.delay > LONGEST_DELAY:
                raise SpecError(
                    f"link {link.source} → {link.target}: delay must be at most {LONGEST_DELAY} ticks in a clocked "
                    f"network, got {link.delay}",
                    hint="all outputs in between are kept; a recurrent layer keeps what it needs",
                )
        for name, what in self.hold.items():
            if name not in self.network.ports:
                known = ", ".join(map(repr, self.network.ports))
                raise SpecError(f"hold: the network has no input {name!r}", hint=f"its inputs are {known}")
            if what not in ("last", "zero"):
                raise SpecError(f"hold: input {name!r} cannot hold {what!r}", hint='"last" or "zero"')
        if self.start not in ("zeros", "wavefront"):
            raise SpecError(f"start must be zeros or wavefront, got {self.start!r}")
        for coord, spec in self.network.layers.items():
            if coord not in self.network.disabled:
                _check_layer(coord, spec)
                bounded(spec.states((ROWS, *self.network.reads[coord][1:])), f"{spec.kind} at {coord}")

    def _check_clock(self, coord: Coord, clock: Clock) -> None:
        """Refuse a clock that looks at what there is not."""
        where = f"clock of the layer at {coord}"
        for part in clock.walk():
            if isinstance(part, Inner):
                raise SpecError(
                    f"{where}: a layer computes once in a tick, and {part} asks for more",
                    hint="inner steps are for regions of programs",
                )
            if isinstance(part, On) and part.name not in self.network.ports:
                known = ", ".join(map(repr, self.network.ports))
                raise SpecError(f"{where}: the network has no input {part.name!r}", hint=f"its inputs are {known}")
            if isinstance(part, Event):
                try:
                    self.watched(part.source)
                except SpecError as error:
                    raise SpecError(f"{where}: {error}", hint=error.hint) from None

    def stream_on(self, device: Any, params: Params, *, batch: int = 1) -> ClockedStream:
        """Return `batch` streams of it on a device; `Device.stream` is this."""
        from volumetric.clocked.stream import ClockedStream

        return ClockedStream(device, self, params, batch=batch)

    def watched(self, source: str) -> tuple[Coord | str, str]:
        """Return the layer, or the name of the input, that an event watches, and which number of it.

        Raises
        ------
        SpecError : there is no such layer, output, input or number, or it holds ids
        """
        what, _, kind = source.rpartition(".")
        network = self.network
        if kind not in WATCHED:
            raise SpecError(f"{source!r}: unknown number {kind!r}", hint="one of " + ", ".join(WATCHED))
        if what in network.ports and what in network.taps:
            raise SpecError(f"{source!r}: {what!r} is an input and an output", hint="name the layer of the output")
        place: Coord | str = what
        if what not in network.ports:
            place = network.taps[what] if what in network.taps else _coord(what, network)
        of = Source(port=place) if isinstance(place, str) else Source(coord=place)
        if carries_ids(of, self.wires, network.ports):
            raise SpecError(f"{source!r}: {what} holds ids, which are no amounts", hint="watch a layer behind it")
        return place, kind

    @cached_property
    def wires(self) -> Mapping[Coord, Wire]:
        """What each layer reads."""
        return {w.coord: w for w in self.network.wires}

    @cached_property
    def delayed(self) -> Network:
        """The network in which links that do not go forwards have their `ticks` as delay, so that it can be lowered."""
        links = tuple(replace(link, delay=1) if _goes_back_at_once(link) else link for link in self.network.links)
        return self.network if links == self.network.links else replace(self.network, links=links)

    @cached_property
    def depths(self) -> Mapping[Coord, int]:
        """Ticks until the first row can have reached each layer, on the longest way that does not go backwards."""
        depths: dict[Coord, int] = {}
        for coord, w in self.wires.items():
            before = (source for source in self.sources(w) if source.coord is not None and source.coord < coord)
            depths[coord] = max((depths[s.coord] + ticks(s) for s in before if s.coord is not None), default=0)
        return depths

    def latency(self, name: str, output: str) -> int | None:
        """Ticks from a row at input `name` to the first output `output` that it can change; None: it never reaches it.

        A row that is given at a tick and changes what is read after the same tick has latency 0.
        """
        arrivals: dict[Coord, int] = {}
        waiting = {w.coord: 0 for w in self.wires.values() if any(_is_port(s, name) for s in self.sources(w))}
        readers: dict[Coord, list[tuple[Coord, int]]] = {}
        for w in self.wires.values():
            for s in self.sources(w):
                if s.coord is not None:
                    readers.setdefault(s.coord, []).append((w.coord, ticks(s)))
        while waiting:
            coord = min(waiting, key=waiting.__getitem__)
            arrivals[coord] = waiting.pop(coord)
            for reader, further in readers.get(coord, ()):
                if reader not in arrivals:
                    waiting[reader] = min(waiting.get(reader, arrivals[coord] + further), arrivals[coord] + further)
        return arrivals.get(self.network.taps[output])

    def to_json(self, *, network: bool = True) -> str:
        """JSON text that `from_json` turns back into an equal machine; the same machine gives the same bytes.

        Parameters
        ----------
        network : whether the network is part of it; without, the text is what ``clocked.json`` holds beside
            ``network.json``
        """
        from volumetric.clocked.clocked_json import clocked_to_json

        return clocked_to_json(self, network=network)

    @classmethod
    def from_json(cls, text: str | bytes, network: Network | None = None) -> Clocked:
        """Read what `to_json` wrote.

        Parameters
        ----------
        network : the network, where the text was written without

        Raises
        ------
        SpecError : something is unknown, ill-typed or missing; the message names the field
        """
        from volumetric.clocked.clocked_json import clocked_from_json

        return clocked_from_json(text, network)

    @staticmethod
    def sources(w: Wire) -> tuple[Source, ...]:
        """Return all that a layer reads, the second operand of a residual last."""
        return w.inputs if w.skip is None else (*w.inputs, w.skip)


def ticks(source: Source) -> int:
    """Ticks from what a source made to who reads it: at least one; an input is read at once."""
    return 0 if source.coord is None else max(1, source.delay)


def _coord(what: str, network: Network) -> Coord:
    """Return the coordinate of a layer that a text names."""
    try:
        coord = Coord.parse(what)
    except SpecError:
        known = ", ".join(map(repr, (*network.ports, *network.taps)))
        raise SpecError(
            f"there is no layer, input or output {what!r} to watch", hint=f'a coordinate, "0.0.1.0", or one of {known}'
        ) from None
    if coord not in network.layers:
        raise SpecError(f"there is no layer at {coord} to watch", hint=places_of(network.layers))
    return coord


def _goes_back_at_once(link: Link) -> bool:
    return link.kind == "activation" and not link.delay and link.source >= link.target


def _is_port(source: Source, name: str) -> bool:
    return source.coord is None and source.port == name


def _check_layer(coord: Coord, spec: LayerSpec) -> None:
    """Refuse what one row a tick is not enough for."""
    children = spec.children().values()
    for child in children:
        _check_layer(coord, child)
    if not children and spec.contextual and not spec.takes_resets:
        raise UnsupportedError(
            f"{spec.kind} at {coord} looks at other rows of its sequence, and a tick has one",
            hint="recurrent layers, and attention with a window, keep what they need from tick to tick",
        )
    if spec.two_way or spec.batch_statistics == "always":
        raise UnsupportedError(f"{spec.kind} at {coord} looks at rows that a tick does not have")
