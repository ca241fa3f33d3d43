"""Liveness: the parts of a program that outputs depend on; the rest is dead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from volumetric.layers.clock import Clock, Event, On
from volumetric.program.layer.edge_tasks import EdgeTask, tasks_of
from volumetric.program.layer.program_facts import Facts, Wire
from volumetric.program.layer.program_params import metered_by
from volumetric.program.layer.recipes import recipe_of


@lru_cache(maxsize=32)
def overlapping_regions(facts: Facts) -> tuple[frozenset[int], ...]:
    """Return for each region the others that share positions with it."""
    at = np.concatenate([place.positions for place in facts.places])
    of = np.repeat(np.arange(len(facts.places)), [len(place.positions) for place in facts.places])
    sharing: list[set[int]] = [set() for _ in facts.places]
    count = np.bincount(at, minlength=facts.program.canvas.positions)
    several = count[at] > 1
    order = np.argsort(at[several], kind="stable")
    where, owners = at[several][order], of[several][order]
    for group in {tuple(part.tolist()) for part in np.split(owners, np.flatnonzero(np.diff(where)) + 1) if part.size}:
        for one in group:
            sharing[one] |= set(group) - {one}
    return tuple(map(frozenset, sharing))


def tells_others(facts: Facts, wire: Wire) -> bool:
    """Return whether the presence of an edge affects positions of other regions, even if it writes nothing.

    If an edge adds and its region is residual, additions of another region's edges at the same positions are residual,
    too.
    """
    place = facts.places[wire.writes]
    adds = wire.write == "add" and place.region.keeps_old and place.carrier != "residual"
    return adds and not facts.program.parity and bool(overlapping_regions(facts)[wire.writes])


@dataclass(frozen=True, slots=True)
class LiveParts:
    """Parts that outputs and losses of regions depend on.

    Attributes
    ----------
    regions, edges : indices of live regions and edges
    meters : indices of regions whose meters clocks and conditions read
    """

    regions: frozenset[int]
    edges: frozenset[int]
    meters: frozenset[int]


@lru_cache(maxsize=64)
def live_in(facts: Facts, region: int | None = None) -> LiveParts:
    """Return the parts reachable from outputs, or from one region only, backwards over edges that write.

    The content of a region depends on the edges that write it, on regions at the same positions, and on the meters
    that its clock and conditions read. A meter depends on its region; in a program with parity, on the edges that read
    the region, and on the regions that these write. A region with its own losses counts as an output.
    """
    search = _LivenessSearch(facts)
    if region is not None:
        search.open = [region]
    return search.live()


def signals_of(clocks: Iterable[Clock | None]) -> set[str]:
    """Return the signals that clocks read."""
    parts = (part for clock in clocks if clock is not None for part in clock.walk())
    return {part.name for part in parts if isinstance(part, On)}


class _LivenessSearch:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.beside = overlapping_regions(facts)
        self.writers: dict[int, list[EdgeTask]] = {}
        self.feeders: dict[int, list[EdgeTask]] = {}
        for task in tasks_of(facts):
            self.writers.setdefault(task.wire.writes, []).append(task)
            if facts.program.parity and metered_by(task, facts.places[task.wire.reads]):
                self.feeders.setdefault(task.wire.reads, []).append(task)
        self.edges: set[int] = set()
        self.meters: set[int] = set()
        self.open = [facts.numbers[port.region] for port in facts.program.outputs.values()]
        self.open += [place.index for place in facts.places if recipe_of(place)]

    def live(self) -> LiveParts:
        """Process the open set until it is empty."""
        regions: set[int] = set()
        while self.open:
            number = self.open.pop()
            if number in regions:
                continue
            regions.add(number)
            self.open += self.beside[number]
            self._asks(self.facts.places[number].region.fires)
            for task in self.writers.get(number, ()):
                self._reads(task)
        return LiveParts(frozenset(regions), frozenset(self.edges), frozenset(self.meters))

    def _reads(self, task: EdgeTask) -> None:
        if task.wire.index not in self.edges:
            self.edges.add(task.wire.index)
            self.open.append(task.wire.reads)
            self._asks(task.wire.edge.holds)

    def _asks(self, clock: Clock | None) -> None:
        for part in () if clock is None else clock.walk():
            if isinstance(part, Event) and (number := self.facts.numbers[part.watched_name]) not in self.meters:
                self.meters.add(number)
                self.open.append(number)
                for task in self.feeders.get(number, ()):
                    self.open.append(task.wire.writes)  # the meter depends on its queries and on its result
                    self._reads(task)
