"""How long what comes in takes until it comes out."""

from __future__ import annotations

import heapq

from volumetric.layers.program.declared import Program
from volumetric.layers.program.facts import Facts
from volumetric.layers.program.ports import In


def latency(facts: Facts, output: str) -> int | None:
    """Return the fewest steps after which an output can depend on what came in; None: it never does.

    With 0 it depends on the row of the same step. An edge takes a step, and its lag on a stream besides; what gets in
    at an input is there when the step begins. Clocks and triggers can only make it longer.
    """
    program = facts.program
    end = program.outputs[output].region
    before: dict[str, int] = {}
    queue = [(0, port.region) for port in program.inputs.values() if isinstance(port, In)]
    heapq.heapify(queue)
    leads = _leads(facts)
    while queue:
        steps, region = heapq.heappop(queue)
        if region in before:
            continue
        before[region] = steps
        for writes, more in leads.get(region, ()):
            heapq.heappush(queue, (steps + more, writes))
    return None if end not in before else max(0, before[end] - 1)


def reached_from(program: Program, region: str) -> set[str]:
    """Return the regions that what a region holds can get to, by one edge or several."""
    leads: dict[str, list[str]] = {}
    for edge in program.edges:
        leads.setdefault(edge.reads, []).append(edge.writes)
    found: set[str] = set()
    stack = list(leads.get(region, ()))
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += leads.get(name, ())
    return found


def _leads(facts: Facts) -> dict[str, list[tuple[str, int]]]:
    """Region → regions that read it, with the steps that takes; edges that never write are left out."""
    stream = facts.program.timing == "stream"
    found: dict[str, list[tuple[str, int]]] = {}
    for wire in facts.wires:
        if wire.rule != "none" and wire.shares.any() and wire.weight:
            lag = (wire.edge.lag or 0) if stream else 0
            found.setdefault(wire.edge.reads, []).append((wire.edge.writes, 1 + lag))
    return found
