"""What a compiler has left although it looks as if it could go, and why."""

from __future__ import annotations

from volumetric.layers.program.constants import constants_of
from volumetric.layers.program.declared import Program
from volumetric.layers.program.facts import Facts, facts_of
from volumetric.layers.program.ports import In, Level
from volumetric.layers.program.tasks import tasks_of
from volumetric.program.compiling.clocks import clocks_of, still_in
from volumetric.program.compiling.liveness import live_in
from volumetric.program.compiling.report import Log


def remark(program: Program, log: Log) -> None:
    """Note what stays of a compiled program."""
    facts = facts_of(program)
    live = live_in(facts)
    for name, port in program.inputs.items():
        if isinstance(port, In | Level) and facts.numbers[port.region] not in live.regions:
            why = f"no output depends on it, but input {name!r} puts into it; without both, columns of inputs move"
            log.add("kept", "region", [port.region], why)
    _never(facts, log)
    still = still_in(facts)
    read = {task.wire.reads for task in tasks_of(facts)}
    zeros = [facts.places[number].name for number in sorted(still & read)]
    log.add("kept", "region", zeros, "it holds zeros for ever, but edges read them, and their answers count")
    _settling(facts, still, log)


def _never(facts: Facts, log: Log) -> None:
    regions, edges = clocks_of(facts)
    for wire in facts.wires:
        if edges[wire.index] is False or regions[wire.writes] is False:
            log.add("kept", "edge", [wire.name], "it never fires, but what others make of their positions tells of it")


def _settling(facts: Facts, still: frozenset[int], log: Log) -> None:
    """Note regions that read nothing that changes, and yet take a step until they are what they stay."""
    entered = {facts.numbers[port.region] for port in facts.program.inputs.values() if isinstance(port, In)}
    sources: dict[int, set[int]] = {}
    for task in tasks_of(facts):
        sources.setdefault(task.wire.writes, set()).add(task.wire.reads)
    constants = {place.index for place in constants_of(facts)}
    for number, reads in sources.items():
        if reads <= still | constants and number not in entered | still:
            why = "it reads only what never changes, but begins with zeros, and again after a reset: it is not constant"
            log.add("kept", "region", [facts.places[number].name], why)
