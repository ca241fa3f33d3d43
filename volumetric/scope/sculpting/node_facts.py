"""What can be changed of one node: its clock, the numbers in it, its threshold, and its edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.layers.clock import Clock
from volumetric.scope.sculpting.clock_numbers import clock_numbers, with_clock_number
from volumetric.scope.sculpting.layer_links import threshold_of
from volumetric.scope.sculpting.network_changes import Changes
from volumetric.scope.sculpting.scene_places import ScenePlaces

MOST_EDGES = 1000
"""Maximum number of edges of a node that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What can be changed of a node, or of an edge of a program.

    Attributes
    ----------
    clock : text of its clock, None: at every tick
    clocked : whether it can have a clock
    numbers : name and value of each number of its clock; and its threshold
    why : why it can have no clock; empty if it can
    """

    name: str
    clock: str | None
    clocked: bool
    numbers: tuple[tuple[str, float], ...]
    why: str = ""

    def describe(self) -> dict[str, Any]:
        """Return JSON data."""
        numbers = [{"label": label, "value": value} for label, value in self.numbers]
        return {"name": self.name, "clock": self.clock, "clocked": self.clocked, "numbers": numbers, "why": self.why}


def node_facts(origin: ScenePlaces, places: ScenePlaces, changes: Changes, node: int | str) -> NodeFacts:
    """Return what can be changed of a node (by index), or of an edge of a program (by name).

    Parameters
    ----------
    origin, places : the network before, and after, all changes

    Raises
    ------
    SpecError : there is no such node or edge
    """
    if isinstance(node, str):
        return _edge_facts(origin, places, changes, node)
    name = origin.name(node)
    if node in changes.clocks:
        clock = changes.clocks[node]
    elif origin.program is not None:
        clock = origin.program.program.canvas.regions[name].clock
    else:
        own = origin.machine.clocks.get(origin.coord(node)) if isinstance(origin.machine, Clocked) else None
        clock = None if own is None else str(own)
    numbers = [] if clock is None else clock_numbers(Clock.parse(clock))
    why = _why_no_clock(origin, node)
    if origin.program is None and origin.fabric(node) is None:
        threshold = threshold_of(places.network.layers[origin.coord(node)])
        numbers += [] if threshold is None else [("threshold", threshold)]
    return NodeFacts(name=name, clock=clock, clocked=not why, numbers=tuple(numbers), why=why)


def _why_no_clock(origin: ScenePlaces, node: int) -> str:
    if origin.program is not None:
        region = origin.program.program.canvas.regions[origin.region(node)]
        return "a constant region never changes" if region.carrier == "constant" else ""
    if not isinstance(origin.machine, Clocked):
        return "this network runs row by row, its layers have no clocks"
    return ""


def _edge_facts(origin: ScenePlaces, places: ScenePlaces, changes: Changes, name: str) -> NodeFacts:
    edges = {} if places.program is None else {str(edge.name): edge for edge in places.program.program.edges}
    if name not in edges:
        raise SpecError(f"there is no edge {name!r:.60} with a clock", hint="edges of programs have clocks")
    before = {} if origin.program is None else {str(edge.name): edge.when for edge in origin.program.program.edges}
    clock = changes.clocks[name] if name in changes.clocks else before.get(name)
    numbers = () if clock is None else tuple(clock_numbers(Clock.parse(clock)))
    return NodeFacts(name=f"edge {name}", clock=clock, clocked=True, numbers=numbers)


def changed_clock(
    facts: NodeFacts, clock: str | None = None, *, number: int | None = None, value: float = 0.0
) -> str | None:
    """Return the text of a node's new clock: a text that is checked, or its clock with one number replaced.

    Raises
    ------
    SpecError : the node can have no clock, or the clock is invalid
    """
    if not facts.clocked:
        raise SpecError(f"{facts.name} can have no clock: {facts.why}")
    if number is not None:
        if facts.clock is None:
            raise SpecError(f"{facts.name} has no clock")
        return str(with_clock_number(Clock.parse(facts.clock), number, value))
    if clock is None:
        return None
    if not isinstance(clock, str) or len(clock) > 1000:
        raise SpecError("a clock is a text of at most 1,000 characters, such as every(4)")
    return str(Clock.parse(clock))


def edges_of(places: ScenePlaces, node: int) -> list[tuple[int, int]]:
    """Return the edges from and to a node, as (source, target): of a fabric those within it."""
    part = places.fabric(node)
    if part is None:
        return list(dict.fromkeys((e.source, e.target) for e in places.scene.edges if node in (e.source, e.target)))
    senders, receivers, _, _ = part.edges
    mine = np.flatnonzero((senders == node) | (receivers == node))
    return list(zip(senders[mine].tolist(), receivers[mine].tolist(), strict=True))


def list_edges(places: ScenePlaces, changes: Changes, node: int) -> list[Mapping[str, Any]]:
    """Return the edges of a node for a list, those that are cut, too, as JSON data."""
    now = edges_of(places, node)
    gone = [pair for pair in sorted(changes.cut) if node in pair]
    added = {(edge.source, edge.target) for edge in changes.added}
    pairs = list(dict.fromkeys([*now, *gone]))[:MOST_EDGES]
    return [
        {"source": a, "target": b, "cut": (a, b) in changes.cut and (a, b) not in added, "added": (a, b) in added}
        for a, b in pairs
    ]
