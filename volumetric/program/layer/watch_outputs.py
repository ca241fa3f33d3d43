"""Columns after the outputs of a watched program: its activity in each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.program.layer.carriers import meter_values
from volumetric.program.layer.edge_tasks import tasks_of
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.settle import RegionStep
from volumetric.program.layer.timing import ALWAYS, Timing

REGIONS, EDGES, STRENGTH, METERS = "@regions", "@edges", "@strength", "@meters"
"""Names of the parts; no port can have these names."""


def watched_columns(facts: Facts) -> dict[str, slice]:
    """Return the watched columns, by name, from the first one after the outputs.

    They are the number of computations of each region and each edge in the row (0 for an edge that never writes), the
    root mean square of each region's content, and the value of each kind of a meter for clocks.
    """
    at = max((of.stop for of in facts.outputs.values()), default=0)
    sizes = {
        REGIONS: len(facts.places),
        EDGES: len(facts.wires),
        STRENGTH: len(facts.places),
        METERS: len(meter_names(facts)),
    }
    columns: dict[str, slice] = {}
    for name, size in sizes.items():
        columns[name] = slice(at, at + size)
        at += size
    return columns


def meter_names(facts: Facts) -> list[str]:
    """Return the names of all meter values, ``region.kind``."""
    return [f"{p.name}.{kind}" for p in facts.places if p.meter is not None for kind in p.meter.kinds]


def writable_edges(facts: Facts) -> Array:
    """Return which edges can write at all, bool ``[edges]``."""
    writes = np.zeros(len(facts.wires), np.bool_)
    writes[[task.wire.index for task in tasks_of(facts)]] = True
    return writes


def emit_watched(regions: RegionStep, truths: Sequence[int], lives: Sequence[int | None], canvas: int) -> list[int]:
    """Emit the watched values of a row: flags of clocks, flags of edge columns, strength of regions, meters.

    Parameters
    ----------
    truths : whether each clock fires, ``[B, 1]``
    lives : for each step of the row which columns of edges fire, ``[B, columns]``; None: all, always

    Returns
    -------
    ``[B, …]`` each; the first two only if there are clocks and columns
    """
    work, outputs = regions.work, list[int]()
    batch = work.shape(canvas)[0]
    if truths:
        outputs.append(work.concat(list(truths), 1))
    live = [of for of in lives if of is not None]
    if live:
        outputs.append(work.add(*live) if len(live) > 1 else live[0])
    strength: list[int] = []
    meters: list[int] = []
    for place in regions.facts.places:
        rows = (
            regions.states[f"{place.name}.values"]
            if place.through == "memory"
            else regions.region_values(canvas, place)
        )
        mean = work.reduce(work.binary("mul", rows, rows), "mean", (1, 2))
        strength.append(work.reshape(mean, (batch, 1)))
        if place.meter is not None:
            meters.append(meter_values(work, place.meter, regions.states[f"{place.name}.meter"]))
    outputs.append(work.unary(work.concat(strength, 1), "sqrt"))
    return [*outputs, *([work.concat(meters, 1)] if meters else [])]


def watched_rows(work: GraphBuilder, facts: Facts, timing: Timing, columns: Sequence[int], outputs: list[int]) -> int:
    """Emit the watched columns of all rows, ``[T, B, columns]``, from the values of `emit_watched`.

    Flags become counts of regions and edges by a product with 0, 1 and more, which is exact.

    Parameters
    ----------
    columns : column of each edge, `ALWAYS` for edges that always fire
    """
    rest = list(outputs)
    shape = work.shape(rest[-1])[:2]
    repeats = {n: 1 + steps for n, steps in enumerate(timing.inner)}
    clocks = rest.pop(0) if timing.clocks else None
    computed = _spread(work, clocks, shape, timing.regions, repeats)
    live = rest.pop(0) if timing.kinds else None
    acts = {n: int(can) for n, can in enumerate(writable_edges(facts))}
    parts = [computed, *([_spread(work, live, shape, columns, acts)] if acts else []), *rest]
    return work.concat(parts, 2)


def _spread(
    work: GraphBuilder, flags: int | None, shape: Sequence[int], columns: Sequence[int], times: Mapping[int, int]
) -> int:
    """Emit ``[T, B, items]``: for each item the flag of its column (1 without a column) times a number."""
    length, batch = shape
    fixed = np.array([times[n] if column == ALWAYS else 0 for n, column in enumerate(columns)], np.float64)
    base = work.broadcast(_constant(work, fixed[None, None]), (length, batch, len(columns)))
    if flags is None:
        return base
    count = work.shape(flags)[2]
    matrix = np.zeros((1, len(columns), count))
    for n, column in enumerate(columns):
        if column != ALWAYS:
            matrix[0, n, column] = times[n]
    flat = work.reshape(flags, (1, length * batch, count))
    counts = work.gemm(flat, _constant(work, matrix), _constant(work, fixed[None]), trans_b=True)
    return work.reshape(counts, (length, batch, len(columns)))


def _constant(work: GraphBuilder, array: Array) -> int:
    return work.constant(array, "watched")
