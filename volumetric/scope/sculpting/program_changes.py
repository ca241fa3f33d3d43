"""Programs of a sculpted network: regions at rest, cut and added edges, clocks and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.program_declaration import Program as Declared
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.region import Canvas
from volumetric.program.layer.timing import timing_of
from volumetric.scope.sculpting.clock_numbers import NEVER
from volumetric.scope.sculpting.network_changes import AddedEdge, Changes


def with_program_changes(spec: Program, changes: Changes) -> Program:
    """Return a program with changes; nodes are indices of regions.

    A cut edge never fires. A masked region never fires, and no edge reads or writes it; its content stays.

    Raises
    ------
    SpecError : an edge to cut does not exist, an edge to add is not possible, or a clock is invalid
    """
    program = spec.program
    names = list(program.canvas.regions)
    masked = {names[node] for node in changes.masked}
    cut = {(names[source], names[target]) for source, target in changes.cut}
    joined = {(edge.reads, edge.writes) for edge in program.edges}
    edges = [
        _changed_edge(edge, changes.clocks, cut if number < len(program.edges) else set(), masked)
        for number, edge in enumerate(_with_added(program, names, changes.added))
    ]
    for source, target in sorted(cut - joined):
        raise SpecError(f"there is no edge from region {source!r} to region {target!r}")
    unknown = sorted({key for key in changes.clocks if isinstance(key, str)} - {str(edge.name) for edge in edges})
    if unknown:
        raise SpecError(f"the program has no edge {unknown[0]!r}")
    regions = dict(program.canvas.regions)
    for node, clock in changes.clocks.items():
        if isinstance(node, int):
            regions[names[node]] = structs.replace(regions[names[node]], clock=clock)
    for name in masked:
        if regions[name].carrier != "constant":
            regions[name] = structs.replace(regions[name], clock=str(NEVER))
    canvas: Canvas = structs.replace(program.canvas, regions=regions)
    return replace(spec, program=structs.replace(program, canvas=canvas, edges=tuple(edges)))


def _with_added(program: Declared, names: Sequence[str], added: Sequence[AddedEdge]) -> list[Edge]:
    edges = list(program.edges)
    for edge in added:
        if program.canvas.regions[names[edge.target]].carrier == "constant":
            raise SpecError(f"no edge can write the constant region {names[edge.target]!r}")
        lag = None if edge.delay in (None, 1) else edge.delay - 1
        edges.append(Edge(reads=names[edge.source], writes=names[edge.target], lag=lag))
    return list(structs.replace(program, edges=tuple(edges)).edges)  # the program names them


def _changed_edge(
    edge: Edge, clocks: Mapping[int | str, str | None], cut: set[tuple[str, str]], masked: set[str]
) -> Edge:
    if (edge.reads, edge.writes) in cut or edge.reads in masked or edge.writes in masked:
        return structs.replace(edge, when=str(NEVER))
    name = str(edge.name)
    return structs.replace(edge, when=clocks[name]) if name in clocks else edge


def carried_counts(before: Program, after: Program, values: Array) -> Array:
    """Return the counts of clocks after a change, ``[streams, counts]``: those of the same clocks go on.

    Parameters
    ----------
    values : counts before it
    """
    old, new = timing_of(before.facts), timing_of(after.facts)
    ends = np.cumsum([len(of) for of in old.starts]).tolist()
    places = {clock: slice(end - len(of), end) for clock, of, end in zip(old.clocks, old.starts, ends, strict=True)}
    parts = [
        values[:, places[clock]] if clock in places else np.zeros((len(values), len(of)), values.dtype)
        for clock, of in zip(new.clocks, new.starts, strict=True)
    ]
    return np.concatenate(parts, 1) if parts else np.zeros((len(values), 0), values.dtype)


def region_states(spec: Program, key: str, value: Array, regions: set[str]) -> Array:
    """Return a state of streams with regions as at the start of a stream.

    Parameters
    ----------
    key : name of the state within the program
    value : ``[streams, …]``
    """
    region = key.rpartition(".")[0]
    if region in regions:
        return np.zeros_like(value)
    if key == "canvas":
        value = value.copy()
        for name in regions:
            value[:, spec.facts.place(name).positions] = 0
    return value
