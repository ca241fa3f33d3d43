"""Clocks of regions and conditions of edges, without duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.layers.clock import Clock, Event, Inner, On
from volumetric.layers.clock_steps import counters
from volumetric.program.layer.edge_tasks import tasks_of
from volumetric.program.layer.ports import Signal
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.program_params import states_of
from volumetric.program.layer.recipes import recipe_states

CANVAS, CLOCK = "canvas", "clock"
"""States: the content of positions, and the counts of clocks minus their start values."""
ALWAYS = -1


@dataclass(frozen=True, slots=True)
class Timing:
    """Clocks of a program.

    Attributes
    ----------
    clocks : distinct clocks
    regions : region → index of its clock, `ALWAYS` if it has none
    edges : edge → index of its condition, `ALWAYS` if it has none
    inner : region → number of additional computations in a step
    columns : for each edge an index that is equal for edges that fire together, `ALWAYS` for those that always fire
    kinds : for each column the clock of the region written and its steps, the condition, and the number of past steps
        to wait for, 0: none
    """

    clocks: tuple[Clock, ...]
    regions: tuple[int, ...]
    edges: tuple[int, ...]
    inner: tuple[int, ...]
    columns: tuple[int, ...]
    kinds: tuple[tuple[int, int, int, int], ...]

    @property
    def starts(self) -> tuple[tuple[float, ...], ...]:
        """Start counts of each clock."""
        return tuple(map(counters, self.clocks))

    @property
    def counts(self) -> int:
        """Number of counts of all clocks."""
        return sum(map(len, self.starts))


@lru_cache(maxsize=32)
def timing_of(facts: Facts) -> Timing:
    """Return the clocks of a program.

    Raises
    ------
    SpecError : a text is no clock, or a clock reads an unknown name; the message names the region or edge
    """
    numbers: dict[Clock, int] = {}

    def number(text: str | None, where: str, *, condition: bool = False) -> tuple[int, int]:
        if text is None:
            return ALWAYS, 0
        try:
            clock = Clock.parse(text)
            steps = clock.steps if isinstance(clock, Inner) else 0
            if steps and condition:
                raise SpecError("a condition cannot have inner steps", hint="set them in the region's clock")
            clock = clock.clock if isinstance(clock, Inner) else clock
            for part in clock.walk():
                _check(facts, part)
        except SpecError as error:
            raise SpecError(f"{where}: {error}", hint=error.hint) from None
        return numbers.setdefault(clock, len(numbers)), steps

    regions = [number(place.region.clock, f"region {place.name!r}: clock") for place in facts.places]
    edges = [number(wire.edge.when, f"edge {wire.name!r}: when", condition=True)[0] for wire in facts.wires]
    waits = {
        task.wire.index: task.source[1] for task in tasks_of(facts) if task.source[1] and task.wire.edge.fill != "lerp"
    }
    kinds: dict[tuple[int, int, int, int], int] = {}
    again = any(steps for _, steps in regions)
    columns: list[int] = []
    for wire in facts.wires:
        kind = *regions[wire.writes], edges[wire.index], waits.get(wire.index, 0)
        always = kind == (ALWAYS, 0, ALWAYS, 0) and not again
        columns.append(ALWAYS if always else kinds.setdefault(kind, len(kinds)))
    return Timing(
        clocks=tuple(numbers),
        regions=tuple(of for of, _ in regions),
        edges=tuple(edges),
        inner=tuple(steps for _, steps in regions),
        columns=tuple(columns),
        kinds=tuple(kinds),
    )


def all_states(facts: Facts) -> dict[str, Shape]:
    """Return all states of a stream, by name; all start with zeros."""
    canvas, counts = facts.program.canvas, timing_of(facts).counts
    shapes: dict[str, Shape] = {CANVAS: (canvas.positions, canvas.width)}
    return shapes | ({CLOCK: (counts,)} if counts else {}) | states_of(facts) | recipe_states(facts)


def meter_at(facts: Facts, event: Event) -> tuple[int, int]:
    """Return the region whose meter an event watches, and the index of the kind."""
    place = facts.place(event.watched_name)
    assert place.meter is not None  # as `timing_of` has checked
    return place.index, place.meter.kinds.index(event.kind)


def _check(facts: Facts, clock: Clock) -> None:
    """Raise `SpecError` if a clock reads an unknown name."""
    if isinstance(clock, Event):
        if clock.watched_name not in facts.numbers:
            raise SpecError(
                f"{clock}: there is no region {clock.watched_name!r}",
                hint=_name_hint(clock.watched_name, facts.numbers),
            )
        meter = facts.place(clock.watched_name).meter
        if meter is None:
            raise SpecError(
                f"{clock}: region {clock.watched_name!r} has no meter",
                hint=f"add meters=[Meter({clock.watched_name!r}, ({clock.kind!r},))], "
                "or use carrier 'residual' or 'filter'",
            )
        if clock.kind not in meter.kinds:
            raise SpecError(
                f"{clock}: the meter of {clock.watched_name!r} has no kind {clock.kind!r}",
                hint=_name_hint(clock.kind, meter.kinds),
            )
    if isinstance(clock, On):
        signals = [name for name, port in facts.program.ports.items() if isinstance(port, Signal)]
        if clock.name not in signals:
            hint = _name_hint(clock.name, signals) if signals else f"add ports={{{clock.name!r}: Signal()}}"
            raise SpecError(f"{clock}: there is no signal {clock.name!r}", hint=hint)


def _name_hint(name: str, known: object) -> str:
    names = [str(one) for one in known]  # pyright: ignore[reportGeneralTypeIssues]  (a mapping or a sequence)
    return suggestion(name, names, "there are " + ", ".join(names))
