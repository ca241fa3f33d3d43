"""What regions have to do with each other without an edge: positions that are of several."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from volumetric.layers.program.facts import Facts, Wire


@lru_cache(maxsize=32)
def overlaps(facts: Facts) -> tuple[frozenset[int], ...]:
    """Return for each region the others that share positions with it."""
    at = np.concatenate([place.positions for place in facts.places])
    of = np.repeat(np.arange(len(facts.places)), [len(place.positions) for place in facts.places])
    found: list[set[int]] = [set() for _ in facts.places]
    count = np.bincount(at, minlength=facts.program.canvas.positions)
    several = count[at] > 1
    order = np.argsort(at[several], kind="stable")
    where, owners = at[several][order], of[several][order]
    for group in {tuple(part.tolist()) for part in np.split(owners, np.flatnonzero(np.diff(where)) + 1) if part.size}:
        for one in group:
            found[one] |= set(group) - {one}
    return tuple(map(frozenset, found))


def tells_others(facts: Facts, wire: Wire) -> bool:
    """Whether an edge acts on positions of other regions by being there, even where it writes nothing.

    Where an edge adds and its region keeps what it held, what edges of another region add at the same positions comes
    on top, too.
    """
    place = facts.places[wire.writes]
    adds = wire.write == "add" and place.region.keeps_old and place.carrier != "residual"
    return adds and not facts.program.parity and bool(overlaps(facts)[wire.writes])
