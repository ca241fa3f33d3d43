"""What clocks and conditions of a program speak of, beside what there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from volumetric.errors import SpecError
from volumetric.layers.clock import Clock, Event, On
from volumetric.layers.program.facts import Facts
from volumetric.layers.program.ports import Signal


def check_watched(facts: Facts) -> None:
    """Raise `SpecError` where a clock or a condition asks for a meter or an event that is not there.

    ``region.kind`` needs a region with a meter of that kind, and ``on(name)`` a port `Signal` of that name.
    """
    kinds = {place.name: place.meter.kinds for place in facts.places if place.meter is not None}
    events = [name for name, port in facts.program.inputs.items() if isinstance(port, Signal)]
    for what, clock in clocks_of(facts):
        for part in clock.walk():
            if isinstance(part, On) and part.name not in events:
                raise SpecError(
                    f"{what}: there is no event {part.name!r}",
                    hint=_near(part.name, events) or f"a port Signal() called {part.name!r} brings it in",
                )
            if isinstance(part, Event):
                _check_metered(what, part, facts, kinds)


def clocks_of(facts: Facts) -> Iterator[tuple[str, Clock]]:
    """Yield all clocks and conditions, each with whose it is."""
    for place in facts.places:
        if place.region.fires is not None:
            yield f"region {place.name!r}: clock", place.region.fires
    for wire in facts.wires:
        if wire.edge.holds is not None:
            yield f"edge {wire.name!r}: when", wire.edge.holds


def _check_metered(what: str, event: Event, facts: Facts, kinds: dict[str, tuple[str, ...]]) -> None:
    if event.what not in facts.numbers:
        raise SpecError(
            f"{what}: there is no region {event.what!r}", hint=_near(event.what, facts.numbers) or "name a region"
        )
    if event.what not in kinds:
        raise SpecError(
            f"{what}: region {event.what!r} has no meter",
            hint=f"Meter({event.what!r}) among the meters of the program, or a carrier that has one",
        )
    if event.kind not in kinds[event.what]:
        known = kinds[event.what]
        raise SpecError(
            f"{what}: the meter of {event.what!r} has no kind {event.kind!r}",
            hint=_near(event.kind, known) or "it has " + ", ".join(known),
        )


def _near(name: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else None
