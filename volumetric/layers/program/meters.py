"""Meters of regions that are alike, followed side by side: for devices on which the number of operations counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
from msgspec.structs import replace

from volumetric.graph.build import GraphBuilder
from volumetric.layers.program.carriers import chosen, followed
from volumetric.layers.program.clocks import apart, together
from volumetric.layers.program.dispatch import Rows
from volumetric.layers.program.facts import Facts, Place


def metered_alike(facts: Facts, fires: Mapping[int, int]) -> list[list[Place]]:
    """Return regions whose errors nobody else reads, several of one size with equal meters, all with clocks or none."""
    alike: dict[tuple[object, ...], list[Place]] = {}
    for place in facts.places:
        if place.meter is not None and place.carrier == "deterministic":
            kind = len(place.positions), replace(place.meter, region="any"), place.index in fires
            alike.setdefault(kind, []).append(place)
    return [places for places in alike.values() if len(places) > 1]


def follow_together(
    work: GraphBuilder,
    places: Sequence[Place],
    states: MutableMapping[str, int],
    canvases: tuple[int, int],
    fires: Mapping[int, int],
    guard: Callable[..., AbstractContextManager[None]],
) -> None:
    """Emit the meters of regions that are alike behind a step, into `states`.

    Parameters
    ----------
    canvases : before and behind the step, ``[B, positions, d]``
    fires : region → whether it fires in a stream
    guard : around what need not run where none of some regions fires
    """
    batch, count, d = work.shape(canvases[0])
    at = np.arange(batch)[:, None] * count + np.stack([place.positions for place in places])[:, None]

    def taken(canvas: int) -> int:
        rows = Rows(work, d)
        rows.add(work.reshape(canvas, (batch * count, d)))
        return work.reshape(rows.taken(at), (len(places) * batch, at.shape[-1], d))

    names = [f"{place.name}.meter" for place in places]
    before, after = map(taken, canvases)
    held, meter = work.concat([states[name] for name in names], 0), places[0].meter
    assert meter is not None
    with guard(*(place.index for place in places)):
        made = followed(work, meter, held, work.binary("sub", after, before))
    if places[0].index in fires:
        flags = together(work, [fires[place.index] for place in places])
        made = chosen(work, work.reshape(flags, (len(places) * batch, 1)), made, held)
    now = work.reshape(made, (len(places), batch, work.shape(held)[1]))
    states.update(zip(names, apart(work, now), strict=True))
