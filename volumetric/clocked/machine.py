"""Clocked: a network in which every layer computes at each tick from the outputs of the previous tick.

At each tick, layers read the values of the previous tick; only rows of inputs are read at the tick they arrive at:

- an input holds the row that arrives at this tick; without a row, it holds the last row, or zeros (`Clocked.hold`)
- a layer reads the sum of the preceding layer's output in reading order, its links, and its inputs, in this
  order; a link or an input with ``"replace"`` replaces the first term. A link carries the output of its source
  ``max(1, delay)`` ticks ago
- a layer that fires replaces its output and its states; a layer that does not fire (because of its clock, or too early
  in a ``"wavefront"``) keeps both. A disabled layer passes its input on, one tick later. Clocks watch layers as of the
  previous tick, and inputs as of this tick
- outputs are read after the tick. A reset sets all states of a stream to their start, before anything else

Systolic arrays: Kung 1982, "Why systolic architectures?".
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from volumetric.base._typing import ROWS
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.graph.state_spec import bounded_states
from volumetric.layers import LayerSpec
from volumetric.layers.clock import Clock, Event, Inner, On
from volumetric.network import Network
from volumetric.network.grid import Coord, Link
from volumetric.network.wiring import Source, Wire, carries_ids, places_of

if TYPE_CHECKING:
    from volumetric.base.text_table import TextTable
    from volumetric.clocked.clocked_stream import ClockedStream
    from volumetric.network import Params

Hold = Literal["last", "zero"]
Start = Literal["zeros", "wavefront"]
LONGEST_DELAY = 4096
"""Maximum delay of a link in ticks."""


WATCHED = ("mean", "max", "min", "rms")
"""Reductions over the features of a layer, an output or an input that clocks can watch."""


@explain_call_errors
@dataclass(frozen=True, kw_only=True)
class Clocked:
    """A network that runs tick by tick. It has the inputs and outputs of the network, at any layer.

    Links may point anywhere, also backwards or to their own source.

    Attributes
    ----------
    network : layers, links, inputs and outputs
    clocks : layer → its clock; a layer without a clock fires at every tick. Events watch one of `WATCHED` of a layer,
        an output or an input, ``"1.0.0.0.rms"``; `On` fires when an input receives a row that is not all zeros
    hold : input → its value without a row, ``"last"`` (default) or ``"zero"``
    start : ``"zeros"``: all layers compute from the first tick on; ``"wavefront"``: each layer starts when the first
        row can have reached it, on the longest path of links that go forward

    Raises
    ------
    SpecError : a clock or `hold` names an unknown layer or input, or a link is longer than `LONGEST_DELAY` ticks
    UnsupportedError : a layer reads other rows of its sequence, like attention without a window
    """

    network: Network = field(kw_only=False)
    clocks: Mapping[Coord, Clock] = field(default_factory=dict)
    hold: Mapping[str, Hold] = field(default_factory=dict)
    start: Start = "zeros"

    if TYPE_CHECKING:  # texts of clocks, and tuples and strings as coordinates, are accepted, too

        def __init__(
            self,
            network: Network,
            *,
            clocks: Mapping[Any, Clock | str] = ...,
            hold: Mapping[str, Hold] = ...,
            start: Start = ...,
        ) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments."""
        own = {"clocks": dict(self.clocks), "hold": dict(self.hold), "start": self.start}
        return functools.partial(type(self), self.network, **own), ()

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.clocks, Mapping):
            raise SpecError(
                f"clocks: expected a clock for each of some layers, got {self.clocks!r:.60}",
                hint='write clocks={"0.0.0.0": "every(2)"}',
            )
        clocks = {Coord.of(coord): Clock.parse(c) if isinstance(c, str) else c for coord, c in self.clocks.items()}
        object.__setattr__(self, "clocks", MappingProxyType(clocks))
        object.__setattr__(self, "hold", MappingProxyType(dict(self.hold)))
        for coord, clock in self.clocks.items():
            if coord not in self.network.layers:
                raise SpecError(f"clock: there is no layer at {coord}", hint=places_of(self.network.layers))
            if not isinstance(clock, Clock):
                raise SpecError(
                    f"clock of the layer at {coord}: expected Every(…) or another clock, got {clock!r}",
                    hint='for example Every(2), or the text "every(2)"',
                )
            self._check_clock(coord, clock)
        for link in self.network.links:
            if link.kind == "activation" and link.delay > LONGEST_DELAY:
                raise SpecError(
                    f"link {link.source} → {link.target}: delay must be at most {LONGEST_DELAY} ticks in a clocked "
                    f"network, got {link.delay}",
                    hint="every output in between is stored; use a recurrent layer for longer memory",
                )
        for name, what in self.hold.items():
            if name not in self.network.ports:
                known = ", ".join(map(repr, self.network.ports))
                raise SpecError(f"hold: the network has no input {name!r}", hint=f"its inputs are {known}")
            if what not in ("last", "zero"):
                raise SpecError(f"hold: input {name!r} cannot hold {what!r}", hint='use "last" or "zero"')
        if self.start not in ("zeros", "wavefront"):
            raise SpecError(f"start must be zeros or wavefront, got {self.start!r}")
        for coord, spec in self.network.layers.items():
            if coord not in self.network.disabled:
                _check_layer(coord, spec)
                bounded_states(spec.states((ROWS, *self.network.reads[coord][1:])), f"{spec.kind} at {coord}")

    def _check_clock(self, coord: Coord, clock: Clock) -> None:
        """Raise `SpecError` if a clock watches an unknown source."""
        where = f"clock of the layer at {coord}"
        for part in clock.walk():
            if isinstance(part, Inner):
                raise SpecError(
                    f"{where}: a layer computes once per tick, but {part} needs several steps",
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

    def summary(self, params: Params | None = None) -> TextTable:
        """Return the table that ``print`` shows: the network, and the clocks of its layers."""
        from volumetric.network.network_table import network_table

        return network_table(self.network, params, clocks=self.clocks, title=str(repr(self))[1:-1])

    def scope(self, params: Params | None = None, rows: Any = None) -> ScopePage:
        """Return a page of the layers in space, as `Network.scope` does; rows run tick by tick."""
        return page_of("network", self, params=params, rows=rows)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        from volumetric.network.network_table import network_line

        clocks = f", {len(self.clocks)} with a clock" if self.clocks else ""
        return f"<Clocked: {network_line(self.network)}{clocks}, start {self.start}>"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.summary()._repr_html_()

    def stream_on(self, device: Any, params: Params, *, batch: int = 1) -> ClockedStream:
        """Return `batch` streams on a device; `Device.stream` calls this."""
        from volumetric.clocked.clocked_stream import ClockedStream

        return ClockedStream(device, self, params, batch=batch)

    def watched(self, source: str) -> tuple[Coord | str, str]:
        """Return the layer or the input name that an event watches, and the reduction.

        Raises
        ------
        SpecError : the layer, output, input or reduction is unknown, or the source holds ids
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
            raise SpecError(f"{source!r}: {what} holds ids, not amounts", hint="watch a layer after it")
        return place, kind

    @cached_property
    def wires(self) -> Mapping[Coord, Wire]:
        """Sources of each layer."""
        return {w.coord: w for w in self.network.wires}

    @cached_property
    def delayed(self) -> Network:
        """The network with `ticks` as the delay of links that do not go forward, so that it can be lowered."""
        links = tuple(replace(link, delay=1) if _goes_back_at_once(link) else link for link in self.network.links)
        return self.network if links == self.network.links else replace(self.network, links=links)

    @cached_property
    def depths(self) -> Mapping[Coord, int]:
        """Ticks until the first row can have reached each layer, on the longest path of links that go forward."""
        depths: dict[Coord, int] = {}
        for coord, w in self.wires.items():
            before = (source for source in self.sources(w) if source.coord is not None and source.coord < coord)
            depths[coord] = max((depths[s.coord] + ticks(s) for s in before if s.coord is not None), default=0)
        return depths

    def latency(self, name: str, output: str) -> int | None:
        """Return the ticks from a row at input `name` until it can change output `output`; None: it never does.

        A row that changes the output of the tick at which it arrives has latency 0.
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
        """Return JSON text for `from_json`; equal machines give equal bytes.

        Parameters
        ----------
        network : whether to include the network; without it, the text is that of a ``clocked.json`` next to a
            ``network.json``
        """
        from volumetric.clocked.clocked_json import clocked_to_json

        return clocked_to_json(self, network=network)

    @classmethod
    def from_json(cls, text: str | bytes, network: Network | None = None) -> Clocked:
        """Read the text of `to_json`.

        Parameters
        ----------
        network : the network, if the text does not include it

        Raises
        ------
        SpecError : a field is unknown, ill-typed or missing; the message names it
        """
        from volumetric.clocked.clocked_json import clocked_from_json

        return clocked_from_json(text, network)

    @staticmethod
    def sources(w: Wire) -> tuple[Source, ...]:
        """Return all sources of a layer, the second operand of a residual last."""
        return w.inputs if w.skip is None else (*w.inputs, w.skip)


def ticks(source: Source) -> int:
    """Return the delay of a source in ticks: at least 1 for a layer, 0 for an input."""
    return 0 if source.coord is None else max(1, source.delay)


def _coord(what: str, network: Network) -> Coord:
    """Parse the coordinate of a layer."""
    try:
        coord = Coord.parse(what)
    except SpecError:
        known = ", ".join(map(repr, (*network.ports, *network.taps)))
        raise SpecError(
            f"there is no layer, input or output {what!r} to watch",
            hint=f'use a coordinate like "0.0.1.0", or one of {known}',
        ) from None
    if coord not in network.layers:
        raise SpecError(f"there is no layer at {coord} to watch", hint=places_of(network.layers))
    return coord


def _goes_back_at_once(link: Link) -> bool:
    return link.kind == "activation" and not link.delay and link.source >= link.target


def _is_port(source: Source, name: str) -> bool:
    return source.coord is None and source.port == name


def _check_layer(coord: Coord, spec: LayerSpec) -> None:
    """Raise `UnsupportedError` for a layer that needs more than one row per tick."""
    children = spec.children().values()
    for child in children:
        _check_layer(coord, child)
    if not children and spec.contextual and not spec.takes_resets:
        raise UnsupportedError(
            f"{spec.kind} at {coord} looks at other rows of its sequence, but a tick has one row",
            hint="use a recurrent layer, or attention with a window: these keep states from tick to tick",
        )
    if spec.two_way or spec.batch_statistics == "always":
        raise UnsupportedError(f"{spec.kind} at {coord} looks at rows that a tick does not have")
