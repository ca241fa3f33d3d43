"""Edges that write in vain, because another one replaces what they write."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from volumetric.layers.program.facts import Facts
from volumetric.layers.program.tasks import Task, tasks_of


@lru_cache(maxsize=64)
def shadowed(facts: Facts) -> Mapping[int, int]:
    """Return edge → the edge that replaces all that it writes, in the same step, whenever it writes."""
    replacing: dict[int, list[Task]] = {}
    for task in tasks_of(facts):
        if task.wire.write == "replace":
            replacing.setdefault(task.wire.writes, []).append(task)
    found: dict[int, int] = {}
    for task in tasks_of(facts):
        for by in replacing.get(task.wire.writes, ()):
            wins = by.wire.index > task.wire.index or task.wire.write != "replace"
            if by is not task and wins and _covers(by, task):
                found[task.wire.index] = by.wire.index
    return MappingProxyType(found)


@lru_cache(maxsize=64)
def overwritten(facts: Facts) -> frozenset[int]:
    """Return regions that an edge replaces as a whole at every step: what comes in there is gone when a step ends."""
    return frozenset(
        task.wire.writes
        for task in tasks_of(facts)
        if task.wire.write == "replace"
        and task.wire.edge.when is None
        and task.place.region.clock is None
        and not _waits(task)
        and bool((task.shares > 0).all())
    )


def _covers(one: Task, other: Task) -> bool:
    """Whether an edge that replaces does so wherever and whenever the other writes."""
    together = one.wire.edge.when in (None, other.wire.edge.when)
    return together and not _waits(one) and bool(((one.shares > 0) | ~(other.shares > 0)).all())


def _waits(task: Task) -> bool:
    """Whether an edge does not write before there are rows to read."""
    return bool(task.source[1]) and task.wire.edge.fill != "lerp"
