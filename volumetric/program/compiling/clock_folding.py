"""Clocks that always or never fire, and regions that stay zero because of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from volumetric.layers.clock import And, Clock, Cooldown, Event, Every, Inner, MaxSilence, Not, Or
from volumetric.layers.clock_steps import NumpyClockOps, step
from volumetric.program.compiling.region_liveness import overlapping_regions
from volumetric.program.layer.edge_tasks import tasks_of
from volumetric.program.layer.ports import In
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.program_params import metered_by
from volumetric.program.layer.recipes import hiding_regions

NEVER = Not(Every(1))
"""Text of a clock that never fires."""


def simplify_clock(clock: Clock, zero: Callable[[str], bool]) -> Clock | bool:
    """Return the simplified clock; True: it always fires, False: never.

    Parameters
    ----------
    zero : path of a meter → whether it is always 0
    """
    if isinstance(clock, Every):
        return True if clock.period == 1 else clock
    if isinstance(clock, Event):
        return _at_zero(clock) if zero(clock.source) else clock
    if isinstance(clock, Not):
        term = simplify_clock(clock.term, zero)
        return Not(term) if isinstance(term, Clock) else not term
    if isinstance(clock, And | Or):
        return _join_terms(clock, [simplify_clock(term, zero) for term in clock.terms])
    if isinstance(clock, Cooldown | MaxSilence | Inner):
        inside = simplify_clock(clock.clock, zero)
        if inside is isinstance(clock, MaxSilence):  # never silent, or nothing to cool down from or to repeat
            return inside
        return replace(clock, clock=inside if isinstance(inside, Clock) else Every(1) if inside else NEVER)
    return clock


def _join_terms(clock: And | Or, terms: list[Clock | bool]) -> Clock | bool:
    decides = isinstance(clock, Or)
    if any(term is decides for term in terms):
        return decides
    left = [term for term in terms if isinstance(term, Clock)]
    if len(left) < 2:
        return left[0] if left else not decides
    return type(clock)(tuple(left))


def _at_zero(event: Event) -> bool:
    truth, _ = step(event, [], NumpyClockOps(lambda _: np.zeros(1), lambda _: np.zeros(1, bool)))
    return bool(truth[0])


@lru_cache(maxsize=32)
def clocks_of(facts: Facts) -> tuple[tuple[Clock | bool, ...], tuple[Clock | bool, ...]]:
    """Return the simplified clocks of regions and conditions of edges."""
    never: frozenset[int] = frozenset()
    while True:  # a region that never fires may keep a meter at 0, which may simplify another clock
        still = still_in(facts, never)

        def fold(clock: Clock | None, still: frozenset[int] = still) -> Clock | bool:
            return True if clock is None else simplify_clock(clock, lambda path: _unmoved(facts, still, path))

        regions = tuple(fold(place.region.fires) for place in facts.places)
        silent = frozenset(number for number, clock in enumerate(regions) if clock is False)
        if silent == never:
            return regions, tuple(fold(wire.edge.holds) for wire in facts.wires)
        never = silent


def still_in(facts: Facts, never: frozenset[int] = frozenset()) -> frozenset[int]:
    """Return the regions that are always zero because some of them never fire.

    Nothing writes to them: no edge, no input, no prediction of a filter, no region at the same positions; and they are
    not constants.
    """
    written = {task.wire.writes for task in tasks_of(facts)} | {place.index for place in hiding_regions(facts)}
    written |= {facts.numbers[port.region] for port in facts.program.inputs.values() if isinstance(port, In)}
    moved = written | {place.index for place in facts.places if place.carrier in ("filter", "constant")}
    moved -= never - {place.index for place in hiding_regions(facts)}
    beside = overlapping_regions(facts)
    return frozenset(
        place.index for place in facts.places if place.index not in moved and beside[place.index].isdisjoint(moved)
    )


def _unmoved(facts: Facts, still: frozenset[int], path: str) -> bool:
    """Return whether a meter is always 0."""
    number = facts.numbers[path.rpartition(".")[0]]
    if facts.program.parity:  # the edges that read its region feed it
        return not any(task.wire.reads == number and metered_by(task, facts.places[number]) for task in tasks_of(facts))
    return number in still
