"""What a program that is watched hands out behind its outputs: what it computed in each row. In NumPy."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.layers.program.facts import Facts
from volumetric.layers.program.tasks import tasks_of

REGIONS, EDGES, STRENGTH, METERS = "@regions", "@edges", "@strength", "@meters"
"""Names of its parts; no port can be called so."""


def watched_columns(facts: Facts) -> dict[str, slice]:
    """Return the columns of what is watched, by name, from the first one behind the outputs.

    Each region and each edge has the number of times that it computed in the row (0 for an edge that never writes),
    each region the root mean square of what it holds, and each kind of a meter what clocks read of it then.
    """
    at = max((of.stop for of in facts.outputs.values()), default=0)
    sizes = {
        REGIONS: len(facts.places),
        EDGES: len(facts.wires),
        STRENGTH: len(facts.places),
        METERS: len(meter_names(facts)),
    }
    found: dict[str, slice] = {}
    for name, size in sizes.items():
        found[name] = slice(at, at + size)
        at += size
    return found


def watched_width(facts: Facts) -> int:
    """Return how many columns these are."""
    return 2 * len(facts.places) + len(facts.wires) + len(meter_names(facts))


def meter_names(facts: Facts) -> list[str]:
    """Return what clocks call the numbers of all meters, ``region.kind``."""
    return [f"{p.name}.{kind}" for p in facts.places if p.meter is not None for kind in p.meter.kinds]


def writing(facts: Facts) -> Array:
    """Return which edges can write at all, bool ``[edges]``."""
    found = np.zeros(len(facts.wires), np.bool_)
    found[[task.wire.index for task in tasks_of(facts)]] = True
    return found
