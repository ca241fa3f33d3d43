"""Deployment of regions: constants are evaluated once, and learning recipes are removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from msgspec.structs import replace

from volumetric.base._typing import Array, F32Array
from volumetric.network.weight_store import WeightStore
from volumetric.program.compiling.compile_report import CompileLog
from volumetric.program.compiling.evaluating import SettlingWatch, evaluate_regions
from volumetric.program.compiling.region_liveness import LiveParts, live_in, overlapping_regions, signals_of
from volumetric.program.layer.edge_tasks import tasks_of
from volumetric.program.layer.ports import In, Level
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, Place, facts_of
from volumetric.program.layer.program_params import metered_by
from volumetric.program.layer.region import Region
from volumetric.program.layer.region_learning import Keep

OF_FAMILY: Final[Mapping[str, Keep]] = MappingProxyType(
    {"observation": "freeze", "state": "runtime", "memory": "runtime", "residual": "freeze", "action": "freeze"}
)
"""Family → default keep of its regions; other families stay ``"runtime"``."""


def keep_of(region: Region) -> Keep:
    """Return the keep of a region: its own, then that of its learning, then that of its family."""
    if region.keep != "auto":
        return region.keep
    if region.learning is not None and region.learning.keep != "auto":
        return region.learning.keep
    return OF_FAMILY.get(region.family, "runtime")


def drop_learning(program: Program, log: CompileLog) -> Program:
    """Remove the learning recipes of regions; their keep does not change."""
    regions: dict[str, Region] = {}
    for name, region in program.canvas.regions.items():
        regions[name] = region
        if region.learning is not None:
            keep = keep_of(region)
            bare = replace(region, learning=None)
            regions[name] = bare if keep_of(bare) == keep else replace(bare, keep=keep)
            log.add("removed", "learning", [name], "its losses, and parameters only for them, are for training")
    return replace(program, canvas=replace(program.canvas, regions=regions))


GIVE = "set the rows after which to take it: after=… or rows=…"


@dataclass(frozen=True, slots=True)
class Constants:
    """A program with some regions replaced by constants.

    Attributes
    ----------
    program : program with constants
    rows : their content, region → ``[rows, d]``
    exported : names of those to export
    """

    program: Program
    rows: Mapping[str, F32Array] = field(default_factory=dict)
    exported: tuple[str, ...] = ()


def fold_constants(
    program: Program, params: Mapping[str, WeightStore] | None, log: CompileLog, rows: Array | None
) -> Constants:
    """Replace regions with keep ``"constant"`` or ``"export"`` by constants; note the reason if one cannot be.

    Parameters
    ----------
    params : parameters by the program's own names
    rows : input rows after which the content is taken, ``[T, columns]``; None: run until the region has settled, which
        requires that it depends on no input
    """
    facts = facts_of(program)
    able = [
        place
        for place in _constant_candidates(facts)
        if not _note_kept(log, place, _hindrance(facts, place, params, rows))
    ]
    if not able or params is None:
        return Constants(program)
    watches = [_watch(facts, place) for place in able]
    evaluation = evaluate_regions(facts, params, watches, rows)
    constant_rows: dict[str, F32Array] = {}
    for place, watch, values in zip(able, watches, evaluation.rows, strict=True):
        why = None
        if rows is None and not watch.settled:
            why = f"it has not settled after {evaluation.count:,} rows; {GIVE}"
        elif not np.isfinite(values).all():
            why = "its content is not finite then"
        if not _note_kept(log, place, why):
            constant_rows[place.name] = values
    when = f"after {evaluation.count:,} rows" + ("" if rows is not None else ", settled")
    return _replace_regions(facts, constant_rows, when, log)


def _constant_candidates(facts: Facts) -> Iterator[Place]:
    live = live_in(facts).regions
    for place in facts.places:
        keep = keep_of(place.region)
        if place.carrier != "constant" and (keep == "export" or (keep == "constant" and place.index in live)):
            yield place


def _note_kept(log: CompileLog, place: Place, why: str | None) -> bool:
    if why is not None:
        log.add("kept", "region", [place.name], f"its keep is {keep_of(place.region)!r}, but {why}")
    return why is not None


def _hindrance(facts: Facts, place: Place, params: object, rows: Array | None) -> str | None:
    """Return why a region cannot be a constant, or None if it can."""
    for name, port in facts.program.ports.items():
        if isinstance(port, In | Level) and port.region == place.name:
            return f"input {name!r} writes to it"
        if place.through == "slots" and getattr(port, "region", None) == place.name:
            return f"output {name!r} reads its positions, and edges its slots"
    if overlapping_regions(facts)[place.index]:
        return "other regions share its positions"
    meters = live_in(facts).meters
    if place.index in meters:
        return "a clock or a condition reads its meter"
    if facts.program.parity:
        for task in tasks_of(facts):
            read = facts.places[task.wire.reads]
            if task.place is place and read.index in meters and metered_by(task, read):
                return f"an edge that writes it feeds the meter of {read.name!r}, which a clock reads"
    if params is None:
        return "no parameters were passed, so it cannot be evaluated"
    if rows is None:
        entered = _entering_input(facts, live_in(facts, place.index))
        if entered is not None:
            return f"its content depends on input {entered!r}; {GIVE}"
    return None


def _entering_input(facts: Facts, cone: LiveParts) -> str | None:
    """Return an input that reaches some regions, or None."""
    clocks = [facts.places[number].region.fires for number in cone.regions]
    clocks += [facts.wires[number].edge.holds for number in cone.edges]
    signals = signals_of(clocks)
    for name, port in facts.program.inputs.items():
        if name in signals or (isinstance(port, In | Level) and facts.numbers[port.region] in cone.regions):
            return name
    return None


def _watch(facts: Facts, place: Place) -> SettlingWatch:
    cone = live_in(facts, place.index)
    return SettlingWatch(facts, place.index, cone.regions, cone.edges)


def _replace_regions(facts: Facts, constant_rows: Mapping[str, F32Array], when: str, log: CompileLog) -> Constants:
    regions: dict[str, Region] = dict(facts.program.canvas.regions)
    for name, rows in constant_rows.items():
        place = facts.place(name)
        slots = None if place.through == "positions" else len(rows)
        regions[name] = replace(
            place.region, carrier="constant", slots=slots, clock=None, learning=None, identity=None, keep="constant"
        )
    log.add("changed", "region", constant_rows, f"it is a constant: its content {when}")
    gone = [edge for edge in facts.program.edges if edge.writes in constant_rows]
    for edge in gone:
        log.add("removed", "edge", [edge.name or ""], f"{edge.writes!r} is a constant, which nothing writes")
    read = tuple(meter for meter in facts.program.meters if meter.region not in constant_rows)
    looked = [name for name in constant_rows if facts.place(name).meter is not None]
    log.add("removed", "meter", looked, "its region is a constant, which has no error")
    program = replace(
        facts.program,
        canvas=replace(facts.program.canvas, regions=regions),
        edges=tuple(edge for edge in facts.program.edges if edge.writes not in constant_rows),
        meters=read,
    )
    exported = tuple(name for name in constant_rows if keep_of(facts.place(name).region) == "export")
    return Constants(program, constant_rows, exported)
