"""Summaries and checks of programs, for people and tools."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.program.compiling.compile_passes import shadowed_edges, silent_edges
from volumetric.program.compiling.compile_report import CompileLog
from volumetric.program.compiling.region_liveness import live_in
from volumetric.program.layer.constraint_checks import violations
from volumetric.program.layer.ports import In, Level, Out, Signal, width_of
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, facts_of
from volumetric.program.layer.program_params import all_params, disturbances, states_of
from volumetric.program.layer.reachability import dead_outputs, latency
from volumetric.program.layer.timing import CANVAS, all_states, timing_of
from volumetric.program.program_diff import parameters_of


def describe(program: Program) -> dict[str, Any]:
    """Return a summary of a program as JSON data.

    Raises
    ------
    SpecError : masks or lags do not fit, or a rule has unsupported options
    """
    facts = facts_of(program)
    canvas = program.canvas
    covered = len(np.unique(np.concatenate([place.positions for place in facts.places])))
    return {
        "canvas": {
            "frames": canvas.frames,
            "shape": list(canvas.shape),
            "width": canvas.width,
            "positions": canvas.positions,
            "covered": covered,
            "bytes": 4 * canvas.positions * canvas.width,
        },
        "states": {name: 4 * math.prod(shape) for name, shape in _states(facts).items()},
        "parameters": sum(math.prod(shape) for shape in parameters_of(program).values()),
        "time": program.timing,
        "share": program.share,
        "parity": program.parity,
        "regions": {place.name: _region(facts, place.index) for place in facts.places},
        "edges": {wire.name: _edge(facts, wire.index) for wire in facts.wires},
        "ports": {name: _port(facts, name) for name in program.ports},
        "latency": {name: latency(facts, name) for name in program.outputs},
        "problems": problems(program),
    }


def problems(program: Program) -> list[str]:
    """Return the reasons why a program cannot be run, a sentence each."""
    try:
        facts = facts_of(program)
    except SpecError as error:
        return [str(error)]
    messages = violations(facts) + disturbances(facts)
    for check in (timing_of, all_params):
        try:
            check(facts)
        except SpecError as error:
            messages.append(str(error))
    messages += [f"the program has no {what} port" for what, of in _ends(program).items() if not of]
    try:
        return [*messages, *dead_outputs(facts).values()]
    except SpecError:  # a rule has unsupported options, which the messages already include
        return messages


def unseen_inputs(program: Program) -> list[str]:
    """Return the inputs that no output, no loss of a region, no clock and no condition depends on.

    Raises
    ------
    SpecError : masks or lags do not fit, or a rule has unsupported options
    """
    log = CompileLog()
    facts = facts_of(shadowed_edges(silent_edges(program, log), log))
    live = live_in(facts)
    return [
        name
        for name, port in program.inputs.items()
        if isinstance(port, In | Level) and facts.numbers[port.region] not in live.regions
    ]


def _states(facts: Facts) -> dict[str, Shape]:
    """Return the states of a stream; without counts of clocks if a clock is invalid."""
    try:
        return all_states(facts)
    except SpecError:
        return {CANVAS: (facts.program.canvas.positions, facts.program.canvas.width)} | states_of(facts)


def _ends(program: Program) -> dict[str, object]:
    return {"input": program.inputs, "output": program.outputs}


def _region(facts: Facts, index: int) -> dict[str, Any]:
    place = facts.places[index]
    region = place.region
    return {
        "family": region.family,
        "carrier": place.carrier,
        "box": [list(side) for side in region.box],
        "positions": len(place.positions),
        "rows": place.rows,
        "through": place.through,
        "period": region.period,
        "clock": region.clock,
        "writers": [facts.wires[number].name for number in facts.writers[index]],
        "meter": None if place.meter is None else list(place.meter.kinds),
    }


def _edge(facts: Facts, index: int) -> dict[str, Any]:
    wire = facts.wires[index]
    return {
        "reads": wire.edge.reads,
        "writes": wire.edge.writes,
        "operator": wire.edge.operator,
        "rule": wire.rule,
        "write": wire.write,
        "weight": wire.weight,
        "heads": wire.heads,
        "when": wire.edge.when,
        "lag": wire.edge.lag,
        "pairs": int(wire.shape[0] * wire.shape[1] if wire.mask is None else wire.mask.sum()),
        "of_pairs": wire.shape[0] * wire.shape[1],
    }


def _port(facts: Facts, name: str) -> dict[str, Any]:
    port = facts.program.ports[name]
    columns = (facts.outputs if isinstance(port, Out) else facts.inputs)[name]
    return {
        "kind": str(port.__struct_config__.tag),
        "region": None if isinstance(port, Signal) else port.region,
        "dim": width_of(port),
        "columns": [columns.start, columns.stop],
    }
