"""Regions as genes: they come into free places of the canvas, go, and change. None where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec.structs import replace

from volumetric.evolution.programs.change import Change, Mark, edge_replaced, region_replaced
from volumetric.evolution.programs.clocks import changed_clock, new_clock
from volumetric.evolution.programs.edges import one_of
from volumetric.evolution.programs.learned import learning_with
from volumetric.evolution.programs.twins import MOST_POSITIONS, Box, twin_of
from volumetric.layers.program.canvas import Canvas
from volumetric.layers.program.declared import Program
from volumetric.layers.program.facts import facts_of
from volumetric.layers.program.meter import Meter
from volumetric.layers.program.names import FAMILIES, RULES
from volumetric.layers.program.ports import Signal
from volumetric.layers.program.region import Carrier, Region

CARRIERS: Final[tuple[Carrier, ...]] = ("deterministic", "filter", "residual", "memory")
"""Carriers that mutation gives. A constant is written by nothing, and a diffusive region without a port that tells its
level of noise is a deterministic one: neither is given."""


def with_carrier(region: Region, carrier: Carrier) -> Region:
    """Return a region with another carrier, without what this one has nothing for."""
    slots = region.slots if carrier == "memory" else None
    return replace(region, carrier=carrier, slots=slots, learning=learning_with(region, carrier))


def add_region(program: Program, mark: Mark, rng: np.random.Generator) -> Change | None:
    """Put a copy of a region, which nothing hears at first, into a free place (see `twins.twin_of`)."""
    return twin_of(program, one_of([*program.canvas.regions], rng), mark, rng)


def drop_region(program: Program, mark: Mark, rng: np.random.Generator) -> Change | None:
    """Remove a region that no port is about, with its edges and its meter."""
    held = {port.region for port in program.ports.values() if not isinstance(port, Signal)}
    able = [name for name in program.canvas.regions if name not in held]
    if not able:
        return None
    gone = one_of(able, rng)
    regions = {name: region for name, region in program.canvas.regions.items() if name != gone}
    return Change(
        program=replace(
            program,
            canvas=replace(program.canvas, regions=regions),
            edges=tuple(edge for edge in program.edges if gone not in (edge.reads, edge.writes)),
            meters=tuple(meter for meter in program.meters if meter.region != gone),
        )
    )


def change_region(program: Program, mark: Mark, rng: np.random.Generator) -> Change | None:
    """Give a region another carrier, family, rule or size, more or fewer rows, or let edges add to what it held."""
    name = one_of([*program.canvas.regions], rng)
    region = program.canvas.regions[name]
    changed = one_of(_CHANGES, rng)(program.canvas, region, rng)
    if changed is None or changed == region:
        return None
    return Change(program=region_replaced(program, name, changed))


def change_clock(program: Program, mark: Mark, rng: np.random.Generator) -> Change | None:
    """Give a region a clock, or an edge a condition, or make what it has looser, tighter or other, or take it away.

    Where nothing is metered a region may get a meter, which something then watches.
    """
    meters = [f"{p.name}.{kind}" for p in facts_of(program).places if p.meter is not None for kind in p.meter.kinds]
    if not meters and rng.random() < 0.3:
        watched = one_of([*program.canvas.regions], rng)
        program = replace(program, meters=(*program.meters, Meter(watched)))
        meters = [f"{watched}.{kind}" for kind in program.meters[-1].kinds]
    number = int(rng.integers(len(program.canvas.regions) + len(program.edges)))
    if number < len(program.canvas.regions):
        name, region = [*program.canvas.regions.items()][number]
        now = region.fires
        clock = new_clock(meters, rng) if now is None else changed_clock(now, meters, rng, inner=True)
        changed = replace(region, clock=None if clock is None else str(clock))
        return Change(program=region_replaced(program, name, changed))
    at = number - len(program.canvas.regions)
    edge = program.edges[at]
    holds = edge.holds
    clock = new_clock(meters, rng) if holds is None else changed_clock(holds, meters, rng, inner=False)
    return Change(program=edge_replaced(program, at, replace(edge, when=None if clock is None else str(clock))))


def _carrier(canvas: Canvas, region: Region, rng: np.random.Generator) -> Region | None:
    if region.carrier in ("diffusive", "constant"):
        return None
    return with_carrier(region, one_of(CARRIERS, rng))


def _family(canvas: Canvas, region: Region, rng: np.random.Generator) -> Region:
    return replace(region, family=one_of(FAMILIES, rng))


def _rule(canvas: Canvas, region: Region, rng: np.random.Generator) -> Region:
    return replace(region, rule=one_of([rule for rule in RULES if rule != "none"], rng))


def _residual(canvas: Canvas, region: Region, rng: np.random.Generator) -> Region:
    return replace(region, residual=not region.keeps_old)


def _rows(canvas: Canvas, region: Region, rng: np.random.Generator) -> Region | None:
    """Give a memory more or fewer rows."""
    if region.carrier != "memory":
        return None
    return replace(region, slots=otherwise_many(region.slots or region.size, rng))


def otherwise_many(now: int, rng: np.random.Generator) -> int:
    """Return one more or less, or twice or half as many."""
    return int(np.clip(one_of((now - 1, now + 1, now * 2, now // 2), rng), 1, MOST_POSITIONS))


def _size(canvas: Canvas, region: Region, rng: np.random.Generator) -> Region | None:
    """Move one side of the box by a position; it stays on the canvas, and overlaps none that it did not."""
    axis = int(rng.integers(1, len(region.box)))
    low, high = region.box[axis]
    side = ((low - 1, high), (low + 1, high), (low, high - 1), (low, high + 1))[int(rng.integers(4))]
    if not 0 <= side[0] < side[1] <= canvas.shape[axis - 1]:
        return None
    box = (*region.box[:axis], side, *region.box[axis + 1 :])
    others = [other.box for other in canvas.regions.values() if other is not region]
    if any(_meet(box, other) and not _meet(region.box, other) for other in others):
        return None
    return replace(region, box=box)


def _meet(a: Box, b: Box) -> bool:
    return all(x[0] < y[1] and y[0] < x[1] for x, y in zip(a, b, strict=True))


_CHANGES: tuple[Callable[[Canvas, Region, np.random.Generator], Region | None], ...] = (
    _carrier, _family, _rule, _residual, _rows, _size, _size,
)  # fmt: skip
