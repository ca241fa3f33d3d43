"""Graph nodes of clocks and meters of programs; equal ones are batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from itertools import accumulate

import numpy as np
from msgspec.structs import replace

from volumetric.graph.build import GraphBuilder
from volumetric.layers.clock import Clock, Event, On
from volumetric.layers.clock_steps import GraphClockOps, step
from volumetric.program.layer.carriers import follow_meter, meter_values, select_flagged
from volumetric.program.layer.edge_dispatch import RowTable
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.program_facts import Facts, Place
from volumetric.program.layer.timing import CLOCK, Timing, meter_at


def truths_of(
    work: GraphBuilder, facts: Facts, timing: Timing, signals: Mapping[str, int], states: MutableMapping[str, int]
) -> list[int]:
    """Emit whether each clock fires, ``[B, 1]``, and count the step in `states`.

    Parameters
    ----------
    signals : signal → its value in a row, ``[B, 1]``
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, clock in enumerate(timing.clocks):
        alike.setdefault(tuple(_kind(facts, clock)), []).append(number)
    firsts = [0, *accumulate(map(len, timing.starts))]
    by_clock, order, rows = dict[int, int](), list[int](), list[int]()
    for numbers in alike.values():
        clock_inputs = _ClockInputs(work, facts, [timing.clocks[n] for n in numbers], signals, states)
        starts = timing.starts[numbers[0]]
        places = [[firsts[n] + count for n in numbers] for count in range(len(starts))]
        counts = [work.affine(clock_inputs.counts(at), 1.0, begun) for at, begun in zip(places, starts, strict=True)]
        truth, after = step(timing.clocks[numbers[0]], counts, clock_inputs.steps())
        work.detached.add(truth)  # it is 0 or 1 and has no gradient
        size = len(numbers), work.shape(truth)[0] // len(numbers), 1
        by_clock |= dict(zip(numbers, split_first_axis(work, work.reshape(truth, size)), strict=True))
        for at, of, begun in zip(places, after, starts, strict=True):
            order += at
            rows.append(work.reshape(work.affine(of, 1.0, -begun), size[:2]))
    if rows:
        counts = work.concat(rows, 0)
        if order != sorted(order):
            counts = work.gather_rows(counts, work.constant(np.argsort(order).astype(np.int32), "counts"))
        states[CLOCK] = work.permute(counts, (1, 0))
        work.detached.add(states[CLOCK])
    return [by_clock[n] for n in range(len(timing.clocks))]


def stack_flags(work: GraphBuilder, flags: Sequence[int]) -> int:
    """Emit flags ``[B, 1]`` as rows ``[flags, B]``; flags from one batch are not copied."""
    return work.concat([work.reshape(flag, (1, work.shape(flag)[0])) for flag in flags], 0)


def _kind(facts: Facts, clock: Clock) -> Iterator[object]:
    """Yield a key that is equal for clocks that can be batched."""
    for part in clock.walk():
        yield type(part), len(part.parts)
        if isinstance(part, Event):
            meter, kind = _meter(facts, part)
            yield replace(meter, region="any"), kind
        values = [getattr(part, field.name) for field in fields(part) if field.name not in ("source", "name")]  # pyright: ignore[reportArgumentType]  (each kind of clock is a dataclass)
        yield tuple(value for value in values if not isinstance(value, Clock | tuple))


def _meter(facts: Facts, event: Event) -> tuple[Meter, int]:
    number, kind = meter_at(facts, event)
    meter = facts.places[number].meter
    assert meter is not None  # as `timing_of` has checked
    return meter, kind


def split_first_axis(work: GraphBuilder, x: int) -> list[int]:
    """Emit the parts of a tensor along its first axis, without it."""
    count, *size = work.shape(x)
    return [work.reshape(work.part(x, 0, n, n + 1), size) for n in range(count)]


@dataclass(frozen=True, slots=True)
class _ClockInputs:
    """A batch of clocks of one form; numbers are ``[clocks · B, 1]``. Leaves are identified by their place."""

    work: GraphBuilder
    facts: Facts
    clocks: Sequence[Clock]
    signals: Mapping[str, int]
    states: Mapping[str, int]

    @property
    def leaves(self) -> list[list[Clock]]:
        """Events that each clock reads, in the order in which a step reads them."""
        return [[part for part in clock.walk() if isinstance(part, Event | On)] for clock in self.clocks]

    def steps(self) -> GraphClockOps:
        """Return the operations for one step of the first clock, which compute it for all of them."""
        number = iter(range(len(self.leaves[0])))
        return GraphClockOps(
            self.work, lambda source: self.meter_numbers(next(number)), lambda name: self.signal_flags(next(number))
        )

    def meter_numbers(self, number: int) -> int:
        """Emit the values of meters."""
        events = [own for leaves in self.leaves if isinstance(own := leaves[number], Event)]
        meter_states = self.work.concat([self.states[f"{event.watched_name}.meter"] for event in events], 0)
        meter, kind = _meter(self.facts, events[0])
        return self.work.part(meter_values(self.work, meter, meter_states), 1, kind, kind + 1)

    def signal_flags(self, number: int) -> int:
        """Emit whether a signal is set."""
        work, zero = self.work, self.work.scalar(0.0)
        names = [own.name for leaves in self.leaves if isinstance(own := leaves[number], On)]
        values = work.concat([self.signals[name] for name in names], 0)
        return work.binary("max", work.binary("greater", values, zero), work.binary("greater", zero, values))

    def counts(self, places: Sequence[int]) -> int:
        """Emit counts by their places in the state."""
        work, state = self.work, self.states[CLOCK]
        if len(places) == 1:
            return work.part(state, 1, places[0], places[0] + 1)
        rows = work.gather_rows(work.permute(state, (1, 0)), work.constant(np.array(places, np.int32), "counts"))
        return work.reshape(rows, (len(places) * work.shape(state)[0], 1))


def metered_alike(facts: Facts, fires: Mapping[int, int]) -> list[list[Place]]:
    """Return groups of regions whose meters can be batched: of one size, with equal meters, all or none with clocks."""
    alike: dict[tuple[object, ...], list[Place]] = {}
    for place in facts.places:
        if place.meter is not None and place.carrier == "deterministic":
            kind = len(place.positions), replace(place.meter, region="any"), place.index in fires
            alike.setdefault(kind, []).append(place)
    return [places for places in alike.values() if len(places) > 1]


def follow_together(
    work: GraphBuilder,
    places: Sequence[Place],
    states: MutableMapping[str, int],
    canvases: tuple[int, int],
    fires: Mapping[int, int],
    predicate: Callable[..., AbstractContextManager[None]],
) -> None:
    """Emit the batched meters of a group of regions after a step, into `states`.

    Parameters
    ----------
    canvases : canvas before and after the step, ``[B, positions, d]``
    fires : region → whether it fires in a stream
    predicate : context for nodes that can be skipped if none of the passed regions fires
    """
    batch, count, d = work.shape(canvases[0])
    at = np.arange(batch)[:, None] * count + np.stack([place.positions for place in places])[:, None]

    def meter_rows(canvas: int) -> int:
        rows = RowTable(work, d)
        rows.add(work.reshape(canvas, (batch * count, d)))
        return work.reshape(rows.gather(at), (len(places) * batch, at.shape[-1], d))

    names = [f"{place.name}.meter" for place in places]
    before, after = map(meter_rows, canvases)
    meter_states, meter = work.concat([states[name] for name in names], 0), places[0].meter
    assert meter is not None
    with predicate(*(place.index for place in places)):
        new_states = follow_meter(work, meter, meter_states, work.binary("sub", after, before))
    if places[0].index in fires:
        flags = stack_flags(work, [fires[place.index] for place in places])
        new_states = select_flagged(work, work.reshape(flags, (len(places) * batch, 1)), new_states, meter_states)
    now = work.reshape(new_states, (len(places), batch, work.shape(meter_states)[1]))
    states.update(zip(names, split_first_axis(work, now), strict=True))
