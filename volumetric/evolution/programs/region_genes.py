"""Regions as genes: add to free places of the canvas, remove and change. Impossible changes return None.

A change initially leaves the program's results unchanged: in place if possible, else by a twin, a copy in a free place
that is initially unread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.lib.stride_tricks import sliding_window_view

from volumetric.evolution.programs.clock_genes import changed_clock, new_clock
from volumetric.evolution.programs.edge_genes import one_of, with_edge
from volumetric.evolution.programs.mask_genes import by_positions
from volumetric.evolution.programs.program_change import Mark, MutatedProgram, edge_replaced, region_replaced
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.name_checks import FAMILIES, LOSSES, RULES
from volumetric.program.layer.ports import Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.recipes import CARRIERS as OF_LOSSES
from volumetric.program.layer.recipes import OF_MODE
from volumetric.program.layer.region import Canvas, Carrier, Identity, Region
from volumetric.program.layer.region_learning import Learning

_TASK = "task"
"""The network's own loss, which is not a gene."""
_FIRST = 0.01
"""Approximate first weight of a loss after 0."""


def change_learning(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Add a loss of weight 0 to a region, or change the weight of a loss, or remove it."""
    name = one_of([*program.canvas.regions], rng)
    region = program.canvas.regions[name]
    if region.carrier == "constant":
        return None
    changed = changed_learning(region, rng)
    return None if changed == region else MutatedProgram(program=region_replaced(program, name, changed))


def changed_learning(region: Region, rng: np.random.Generator) -> Region:
    """Add a loss that the carrier of a region supports, remove a loss, or change its weight.

    A loss of weight 0 has no effect and no parameters; its first weight is small.
    """
    losses = losses_of(region.learning)
    own = [name for name in losses if name != _TASK]
    able = [name for name in LOSSES if name != _TASK and name not in losses and _fits(name, region.carrier)]
    choice = rng.random()
    if able and (not own or choice < 0.3):
        losses[one_of(able, rng)] = 0.0
    elif own and choice < 0.5:
        del losses[one_of(own, rng)]
    elif own:
        name = one_of(own, rng)
        losses[name] = round(float((losses[name] or _FIRST) * np.exp(rng.normal(0, 0.5))), 6)
    return replace(region, learning=_learning(region.learning, losses))


def learning_with(region: Region, carrier: str) -> Learning | None:
    """Return the learning of a region with a new carrier: without losses that the carrier does not support."""
    losses = losses_of(region.learning)
    left = {name: weight for name, weight in losses.items() if _fits(name, carrier)}
    return region.learning if left == losses else _learning(region.learning, left)


def losses_of(learning: Learning | None) -> dict[str, float]:
    """Return all losses of a region and their weights."""
    if learning is None:
        return {}
    return dict.fromkeys(OF_MODE[learning.mode], 1.0) if learning.losses is None else dict(learning.losses)


def _learning(before: Learning | None, losses: dict[str, float]) -> Learning | None:
    if before is None and not losses:
        return None
    return replace(before or Learning("none"), losses=losses)


def _fits(loss: str, carrier: str) -> bool:
    return loss == _TASK or carrier in OF_LOSSES.get(loss, (carrier,))


MOST_POSITIONS = 4096
"""Maximum number of positions to which a canvas without free places grows."""
Box = tuple[tuple[int, int], ...]


def twin_of(
    program: Program,
    model: str,
    mark: Mark,
    rng: np.random.Generator,
    *,
    as_region: Region | None = None,
    event: tuple[Any, ...] = (),
) -> MutatedProgram | None:
    """Copy a region, with the edges that write it, to a free place; some region reads the copy.

    The copy has the parameters of its model. It is read through a gate and without contribution at first, so that the
    program's results do not change if the reading region is deterministic; a deterministic region is preferred.

    Parameters
    ----------
    as_region : declaration of the copy, except its box; None: as the model
    event : key that distinguishes this copy from other copies of the model in its generation
    """
    regions = program.canvas.regions
    name = f"r{mark(('program region', model, *event))}"
    if name in regions:
        return None
    canvas, box = _free(program.canvas, regions[model].box, rng)
    if canvas is None or box is None:
        return None
    copy = regions[model] if as_region is None else as_region
    copies = {f"regions.{name}": f"regions.{model}"}
    edges = [*program.edges]
    for edge in program.edges:
        if edge.writes == model:
            own = f"e{mark(('program copy', edge.name, name))}"
            own_rows = edge.reads == model
            mask = edge.mask if not own_rows or by_positions(copy) else None
            edges.append(replace(edge, writes=name, reads=name if own_rows else edge.reads, mask=mask, name=own))
            copies[f"edges.{own}"] = f"edges.{edge.name}"
    grown = replace(canvas, regions={**regions, name: replace(copy, box=box)})
    quiet = [of for of, region in regions.items() if region.carrier == "deterministic"]
    with_twin = replace(program, canvas=grown, edges=tuple(edges))
    read = with_edge(with_twin, name, one_of(quiet or [*regions], rng), "cross", mark)
    return None if read is None else MutatedProgram(program=read.program, copies=copies, closed=read.closed)


def _free(canvas: Canvas, box: Box, rng: np.random.Generator) -> tuple[Canvas | None, Box | None]:
    """Return a place for a box of this size, at the same frames; a full canvas grows along space."""
    occupied = np.zeros(canvas.shape, bool)
    for region in canvas.regions.values():
        occupied[tuple(slice(*side) for side in region.box[1:])] = True
    size = tuple(high - low for low, high in box[1:])
    if all(a <= b for a, b in zip(size, canvas.shape, strict=True)):
        windows = sliding_window_view(occupied, size).any(tuple(range(len(size), 2 * len(size))))
        spots = np.argwhere(~windows)
        if len(spots):
            spot = spots[int(rng.integers(len(spots)))].tolist()
            return canvas, (box[0], *((at, at + side) for at, side in zip(spot, size, strict=True)))
    shape = (canvas.shape[0] + size[0], *canvas.shape[1:])
    if canvas.frames * math.prod(shape) > MOST_POSITIONS:
        return None, None
    spot = (canvas.shape[0], *([0] * (len(size) - 1)))
    return replace(canvas, shape=shape), (box[0], *((at, at + side) for at, side in zip(spot, size, strict=True)))


CARRIERS: Final[tuple[Carrier, ...]] = ("deterministic", "filter", "residual", "memory")
"""Carriers that mutation assigns. Constants, which nothing writes, and diffusive regions, which are deterministic
without a noise-level port, are excluded."""


def with_carrier(region: Region, carrier: Carrier) -> Region:
    """Return a region with another carrier, without properties that the carrier does not support."""
    slots = region.slots if carrier == "memory" else None
    return replace(region, carrier=carrier, slots=slots, learning=learning_with(region, carrier))


def add_region(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Copy a region, initially unread, to a free place (see `twin_of`)."""
    return twin_of(program, one_of([*program.canvas.regions], rng), mark, rng)


def drop_region(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Remove a region without ports, with its edges and its meter."""
    with_ports = {port.region for port in program.ports.values() if not isinstance(port, Signal)}
    able = [name for name in program.canvas.regions if name not in with_ports]
    if not able:
        return None
    gone = one_of(able, rng)
    regions = {name: region for name, region in program.canvas.regions.items() if name != gone}
    return MutatedProgram(
        program=replace(
            program,
            canvas=replace(program.canvas, regions=regions),
            edges=tuple(edge for edge in program.edges if gone not in (edge.reads, edge.writes)),
            meters=tuple(meter for meter in program.meters if meter.region != gone),
        )
    )


def change_region(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Change carrier, family, rule, size or number of rows of a region, or let edges add to its previous value."""
    name = one_of([*program.canvas.regions], rng)
    region = program.canvas.regions[name]
    changed = one_of(_CHANGES, rng)(program.canvas, region, rng)
    if changed is None or changed == region:
        return None
    return MutatedProgram(program=region_replaced(program, name, changed))


def change_clock(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Add a clock to a region or a condition to an edge, or loosen, tighten, change or remove it.

    If the program has no meter, a region may get a meter, which a clock then watches.
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
        return MutatedProgram(program=region_replaced(program, name, changed))
    at = number - len(program.canvas.regions)
    edge = program.edges[at]
    holds = edge.holds
    clock = new_clock(meters, rng) if holds is None else changed_clock(holds, meters, rng, inner=False)
    return MutatedProgram(program=edge_replaced(program, at, replace(edge, when=None if clock is None else str(clock))))


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
    """Change the number of rows of a memory."""
    if region.carrier != "memory":
        return None
    return replace(region, slots=otherwise_many(region.slots or region.size, rng))


def otherwise_many(now: int, rng: np.random.Generator) -> int:
    """Return `now` plus or minus one, doubled or halved."""
    return int(np.clip(one_of((now - 1, now + 1, now * 2, now // 2), rng), 1, MOST_POSITIONS))


def _size(canvas: Canvas, region: Region, rng: np.random.Generator) -> Region | None:
    """Move one side of the box by a position; it stays on the canvas and does not overlap new regions."""
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


_SLOTS = 8
"""Maximum number of slots that mutation assigns to a region read by position."""
_OPEN = 16.0
"""Bias of an open gate: σ(16) is 1 to the rounding of float32."""


def change_carrier(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Change the carrier of a region.

    A deterministic region becomes a filter with gain ``K = σ(16) = 1``, which computes the same. If the new carrier is
    residual or memory, a twin of the region gets it, because edges would immediately read different values. A region of
    another carrier gets a twin or, with equal probability, becomes deterministic.
    """
    name = _one_written(program, rng)
    if name is None:
        return None
    region = program.canvas.regions[name]
    others: list[Carrier] = [carrier for carrier in CARRIERS if carrier != region.carrier]
    carrier = one_of(others, rng)
    if region.carrier != "deterministic" and rng.random() < 0.5:
        return MutatedProgram(program=region_replaced(program, name, with_carrier(region, "deterministic")))
    changed = with_carrier(region, carrier)
    if (region.carrier, carrier) == ("deterministic", "filter"):
        start = f"regions.{name}.gain"
        begins = {f"{start}.weight": 0.0, f"{start}.bias": _OPEN}
        return MutatedProgram(program=region_replaced(program, name, changed), begins=begins)
    return twin_of(program, name, mark, rng, as_region=changed, event=(carrier,))


def change_slots(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Let a region be read through slots, or change or remove its slots.

    New slots are in a twin of the region, so that the program's results do not change. Births begin with an open gate;
    remaining slots keep their initial values.
    """
    name = _one_written(program, rng)
    if name is None:
        return None
    region, choice = program.canvas.regions[name], rng.random()
    now = region.identity
    if now is None:
        capacity = int(rng.integers(1, _SLOTS + 1))
        read = replace(region, identity=Identity(capacity))
        return twin_of(program, name, mark, rng, as_region=read, event=("slots", capacity))
    if choice < 0.25:
        return MutatedProgram(program=region_replaced(program, name, replace(region, identity=None)))
    if choice < 0.5:
        other = replace(now, mode="ephemeral" if now.mode == "persistent" else "persistent")
        return MutatedProgram(program=region_replaced(program, name, replace(region, identity=other)))
    if choice < 0.65:
        begins = {f"regions.{name}.life.down.weight": 0.0, f"regions.{name}.life.down.bias": _OPEN}
        altered = region_replaced(program, name, replace(region, identity=replace(now, births=not now.births)))
        return MutatedProgram(program=altered, begins=begins)
    many = replace(now, capacity=otherwise_many(now.capacity, rng))
    return (
        None if many == now else MutatedProgram(program=region_replaced(program, name, replace(region, identity=many)))
    )


def _one_written(program: Program, rng: np.random.Generator) -> str | None:
    able = [name for name, region in program.canvas.regions.items() if region.carrier != "constant"]
    return one_of(able, rng) if able else None
