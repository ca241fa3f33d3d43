"""Latency from inputs to outputs, and edges whose writes another edge replaces."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from volumetric.program.layer.edge_tasks import EdgeTask, tasks_of
from volumetric.program.layer.ports import In
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.program_params import constants_of


def latency(facts: Facts, output: str) -> int | None:
    """Return the minimum number of steps after which an output can depend on an input; None: it never does.

    0 means the row of the same step. An edge takes one step, plus its lag on a stream; an input is written before the
    step. Clocks and triggers can only increase it. Writes that another edge always replaces in the same step do not
    count.
    """
    program = facts.program
    end = program.outputs[output].region
    gone = {facts.places[number].name for number in overwritten_regions(facts)}
    before: dict[str, int] = {}
    queue = [(0, port.region) for port in program.inputs.values() if isinstance(port, In)]
    heapq.heapify(queue)
    leads = _leads(facts)
    while queue:
        steps, region = heapq.heappop(queue)
        if region in before:
            continue
        if steps or region not in gone:  # other edges read the input before it is replaced
            before[region] = steps
        for writes, more in leads.get(region, ()):
            heapq.heappush(queue, (steps + more, writes))
    return None if end not in before else max(0, before[end] - 1)


def dead_outputs(facts: Facts) -> dict[str, str]:
    """Return each output that depends on no input, although there are inputs, with a sentence that says why.

    Outputs of constants are excluded.
    """
    program = facts.program
    fixed = {place.name for place in constants_of(facts)}
    messages: dict[str, str] = {}
    for name, port in program.outputs.items() if program.inputs else ():
        if port.region not in fixed and latency(facts, name) is None:
            cut = ", ".join(_severing_edges(facts, name))
            messages[name] = f"output {name!r} depends on no input over any path" + (f": {cut}" if cut else "")
    return messages


def _severing_edges(facts: Facts, output: str) -> list[str]:
    """Return the edges that replace all writes to a region, among regions that a dead output depends on."""
    behind = {facts.program.outputs[output].region}
    leads = _leads(facts)
    while more := {reads for reads, to in leads.items() if behind & {writes for writes, _ in to}} - behind:
        behind |= more
    cut = {
        by: facts.wires[by].edge.writes
        for by in replacing_edges(facts).values()
        if facts.wires[by].edge.writes in behind
    }
    return [f"edge {facts.wires[by].name!r} replaces all writes to {region!r}" for by, region in sorted(cut.items())]


def reached_from(program: Program, region: str) -> set[str]:
    """Return the regions that depend on a region, by one edge or several."""
    leads: dict[str, list[str]] = {}
    for edge in program.edges:
        leads.setdefault(edge.reads, []).append(edge.writes)
    reached: set[str] = set()
    stack = list(leads.get(region, ()))
    while stack:
        name = stack.pop()
        if name not in reached:
            reached.add(name)
            stack += leads.get(name, ())
    return reached


def _leads(facts: Facts) -> dict[str, list[tuple[str, int]]]:
    """Return region → regions that read it, with the steps it takes; without edges whose writes are replaced."""
    stream, vain = facts.program.timing == "stream", replacing_edges(facts)
    readers: dict[str, list[tuple[str, int]]] = {}
    for wire in facts.wires:
        if wire.rule != "none" and wire.shares.any() and wire.weight and wire.index not in vain:
            lag = (wire.edge.lag or 0) if stream else 0
            readers.setdefault(wire.edge.reads, []).append((wire.edge.writes, 1 + lag))
    return readers


@lru_cache(maxsize=64)
def replacing_edges(facts: Facts) -> Mapping[int, int]:
    """Return edge → the edge that always replaces all its writes in the same step."""
    replacing: dict[int, list[EdgeTask]] = {}
    for task in tasks_of(facts):
        if task.wire.write == "replace":
            replacing.setdefault(task.wire.writes, []).append(task)
    replaced_by: dict[int, int] = {}
    for task in tasks_of(facts):
        for by in replacing.get(task.wire.writes, ()):
            wins = by.wire.index > task.wire.index or task.wire.write != "replace"
            if by is not task and wins and _covers(by, task):
                replaced_by[task.wire.index] = by.wire.index
    return MappingProxyType(replaced_by)


@lru_cache(maxsize=64)
def overwritten_regions(facts: Facts) -> frozenset[int]:
    """Return regions that an edge replaces completely at every step, so that inputs to them do not survive the step."""
    return frozenset(
        task.wire.writes
        for task in tasks_of(facts)
        if task.wire.write == "replace"
        and task.wire.edge.when is None
        and task.place.region.clock is None
        and not _edge_delay(task)
        and bool((task.shares > 0).all())
    )


def _covers(one: EdgeTask, other: EdgeTask) -> bool:
    """Return whether an edge that replaces covers all writes of the other, in positions and in time."""
    together = one.wire.edge.when in (None, other.wire.edge.when)
    return together and not _edge_delay(one) and bool(((one.shares > 0) | ~(other.shares > 0)).all())


def _edge_delay(task: EdgeTask) -> bool:
    """Return whether an edge does not write until there are past rows to read."""
    return bool(task.source[1]) and task.wire.edge.fill != "lerp"
