"""Passes of the compiler: each takes a program and returns one with the same outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from volumetric.layers.clock import Clock
from volumetric.program.compiling.clock_folding import NEVER, clocks_of, still_in
from volumetric.program.compiling.compile_report import CompileLog
from volumetric.program.compiling.region_liveness import live_in, signals_of, tells_others
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_tasks import tasks_of
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Level, Port, Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import METERED, Facts, facts_of
from volumetric.program.layer.program_params import constants_of, metered_by
from volumetric.program.layer.reachability import replacing_edges
from volumetric.program.layer.recipes import recipe_of
from volumetric.program.layer.region import Canvas, Region


def silent_edges(program: Program, log: CompileLog) -> Program:
    """Remove edges that never write."""
    facts = facts_of(program)
    writing = {task.wire.index for task in tasks_of(facts)}
    gone: dict[str, str] = {}
    for wire in facts.wires:
        if wire.index in writing:
            continue
        if wire.rule == "none":
            gone[wire.name] = "its rule is none, which writes nothing"
        elif not wire.weight:
            gone[wire.name] = "its weight is 0"
        else:
            gone[wire.name] = "no position that it writes has one to read"
    return _without_edges(program, gone, log)


def static_clocks(program: Program, log: CompileLog) -> Program:
    """Remove clocks and conditions that always hold, and edges that never fire."""
    facts = facts_of(program)
    of_regions, of_edges = clocks_of(facts)
    feeding = _feeding(facts)
    regions = dict(program.canvas.regions)
    for place, left in zip(facts.places, of_regions, strict=True):
        text = _text(left)
        if text != place.region.clock:
            log.add("removed" if text is None else "changed", "clock", [place.name], _clock_reason(left))
            regions[place.name] = replace(place.region, clock=text)
    gone: dict[str, str] = {}
    edges: list[Edge] = []
    for wire, left in zip(facts.wires, of_edges, strict=True):
        text = _text(left)
        if text != wire.edge.when:
            log.add("removed" if text is None else "changed", "condition", [wire.name], _clock_reason(left))
        edges.append(replace(wire.edge, when=text))
        why = "its condition never holds" if left is False else ""
        if of_regions[wire.writes] is False:
            why = f"{wire.edge.writes!r} never fires"
        if why and wire.index not in feeding and not tells_others(facts, wire):
            gone[wire.name] = why
    return _without_edges(_replace_parts(program, regions, edges), gone, log)


def shadowed_edges(program: Program, log: CompileLog) -> Program:
    """Remove edges whose writes are all replaced in the same step."""
    facts = facts_of(program)
    feeding = _feeding(facts)
    gone: dict[str, str] = {}
    for number, by in replacing_edges(facts).items():
        wire = facts.wires[number]
        if number not in feeding and not tells_others(facts, wire):
            gone[wire.name] = f"edge {facts.wires[by].name!r} replaces all that it writes, whenever it does"
    return _without_edges(program, gone, log)


def still_regions(program: Program, log: CompileLog) -> Program:
    """Remove clocks of regions that are zero whether they fire or not."""
    facts = facts_of(program)
    regions = dict(program.canvas.regions)
    for number in still_in(facts):
        place = facts.places[number]
        has_effects = place.region.identity is not None or recipe_of(place)  # slots and losses advance when it fires
        if place.region.clock is not None and not has_effects:
            log.add("removed", "clock", [place.name], "nothing ever writes the region: it is zero")
            regions[place.name] = replace(place.region, clock=None)
    return _replace_parts(program, regions, program.edges)


def dead_parts(program: Program, log: CompileLog, *, drop_inputs: bool) -> Program:
    """Remove regions and edges that no output depends on, and inputs if allowed."""
    facts = facts_of(program)
    live = live_in(facts)
    why = "no output depends on it"
    edges = [wire.edge for wire in facts.wires if wire.index in live.edges]
    log.add("removed", "edge", [wire.name for wire in facts.wires if wire.index not in live.edges], why)
    live_names = {facts.places[number].name for number in live.regions}
    ports = dict(program.ports)
    if drop_inputs:
        ports = _live_ports(program, live_names, edges, log)
    landing: dict[str, str] = {}
    for name, port in ports.items():
        if isinstance(port, In | Level) and port.region not in live_names:
            landing.setdefault(port.region, name)
    regions: dict[str, Region] = {}
    for name, region in program.canvas.regions.items():
        if name in live_names:
            regions[name] = region
        elif name in landing:
            level = any(isinstance(port, Level) and port.region == name for port in ports.values())
            regions[name] = _port_region(region, level=level)
            if regions[name] != region:
                log.add("changed", "region", [name], f"no output depends on it; it only holds input {landing[name]!r}")
        else:
            log.add("removed", "region", [name], why)
    gone = [meter.region for meter in program.meters if meter.region not in regions]
    log.add("removed", "meter", [name for name in gone if facts.place(name).meter is not None], why)
    meters = tuple(meter for meter in program.meters if meter.region in regions)
    return _replace_parts(program, regions, edges, ports=ports, meters=meters)


def unread_meters(program: Program, log: CompileLog) -> Program:
    """Remove meters that no clock and no condition reads."""
    facts = facts_of(program)
    read = live_in(facts).meters
    meters: list[Meter] = []
    for place in facts.places:
        own_meter = next((meter for meter in program.meters if meter.region == place.name), None)
        if place.index in read:
            meters += [] if own_meter is None else [own_meter]
            continue
        if place.meter is not None:
            log.add("removed", "meter", [place.name], "no clock and no condition reads it")
        if place.carrier in METERED:  # these have a meter by default
            meters.append(Meter(place.name, ()))
    order = {meter.region: number for number, meter in enumerate(program.meters)}
    meters.sort(key=lambda meter: order.get(meter.region, len(order)))
    return replace(program, meters=tuple(meters))


def trim_canvas(program: Program, log: CompileLog) -> Program:
    """Shorten each spatial axis of the canvas after the last region; codes depend on coordinates and do not change."""
    canvas = program.canvas
    ends = (max(region.box[axis][1] for region in canvas.regions.values()) for axis in range(1, len(canvas.sides)))
    shape = tuple(ends)
    if shape == canvas.shape:
        return program
    sides = ["×".join(map(str, sides)) for sides in (canvas.shape, shape)]
    log.add("changed", "canvas", [""], f"{sides[0]} → {sides[1]}: no region is beyond")
    return replace(program, canvas=replace(canvas, shape=shape))


SAFE: Final[tuple[Callable[[Program, CompileLog], Program], ...]] = (
    silent_edges,
    static_clocks,
    shadowed_edges,
    still_regions,
)
"""Passes before the removal of dead parts."""


def _without_edges(program: Program, gone: dict[str, str], log: CompileLog) -> Program:
    if not gone:
        return program
    for name, why in gone.items():
        log.add("removed", "edge", [name], why)
    return replace(program, edges=tuple(edge for edge in program.edges if edge.name not in gone))


def _replace_parts(program: Program, regions: dict[str, Region], edges: Iterable[Edge], **fields: Any) -> Program:
    canvas: Canvas = replace(program.canvas, regions=regions)
    return replace(program, canvas=canvas, edges=tuple(edges), **fields)


def _text(left: Clock | bool) -> str | None:
    return str(left) if isinstance(left, Clock) else None if left else str(NEVER)


def _clock_reason(left: Clock | bool) -> str:
    if isinstance(left, Clock):
        return f"the rest of it never changes, {left} remains"
    return "it always holds" if left else "it never holds"


def _feeding(facts: Facts) -> frozenset[int]:
    """Return the edges that feed a meter: with parity, those that read a residual region."""
    if not facts.program.parity:
        return frozenset()
    return frozenset(task.wire.index for task in tasks_of(facts) if metered_by(task, facts.places[task.wire.reads]))


def _port_region(region: Region, *, level: bool) -> Region:
    """Return a region reduced to the fields that a port needs."""
    carrier = region.carrier if level else "deterministic"
    return replace(region, clock=None, learning=None, identity=None, slots=None, constraints=None, carrier=carrier)


def _live_ports(program: Program, live_names: set[str], edges: Iterable[Edge], log: CompileLog) -> dict[str, Port]:
    """Return the ports without unused inputs; at least one input stays."""
    signal_names = signals_of(
        [*(program.canvas.regions[name].fires for name in live_names), *(edge.holds for edge in edges)]
    )
    gone = [
        name
        for name, port in program.inputs.items()
        if (name not in signal_names if isinstance(port, Signal) else port.region not in live_names)
    ]
    if len(gone) == len(program.inputs):
        gone = gone[1:]
    log.add("removed", "port", gone, "no output depends on it; columns of other inputs move")
    return {name: port for name, port in program.ports.items() if name not in gone}


def remark(program: Program, log: CompileLog) -> None:
    """Add notes about parts that stay in a compiled program."""
    facts = facts_of(program)
    live = live_in(facts)
    for name, port in program.inputs.items():
        if isinstance(port, In | Level) and facts.numbers[port.region] not in live.regions:
            why = f"no output depends on it, but input {name!r} writes it; removing both moves columns of inputs"
            log.add("kept", "region", [port.region], why)
    _never(facts, log)
    still = still_in(facts)
    read = {task.wire.reads for task in tasks_of(facts)}
    zeros = [facts.places[number].name for number in sorted(still & read)]
    log.add("kept", "region", zeros, "it is always zero, but edges read it, and their results count")
    _settling(facts, still, log)


def _never(facts: Facts, log: CompileLog) -> None:
    regions, edges = clocks_of(facts)
    for wire in facts.wires:
        if edges[wire.index] is False or regions[wire.writes] is False:
            log.add("kept", "edge", [wire.name], "it never fires, but its presence affects shared positions")


def _settling(facts: Facts, still: frozenset[int], log: CompileLog) -> None:
    """Add notes about regions that read only constant values, but need a step to reach their final content."""
    entered = {facts.numbers[port.region] for port in facts.program.inputs.values() if isinstance(port, In)}
    sources: dict[int, set[int]] = {}
    for task in tasks_of(facts):
        sources.setdefault(task.wire.writes, set()).add(task.wire.reads)
    constants = {place.index for place in constants_of(facts)}
    for number, reads in sources.items():
        if reads <= still | constants and number not in entered | still:
            why = "it reads only constant values, but starts with zeros, also after a reset, so it is not constant"
            log.add("kept", "region", [facts.places[number].name], why)
