"""In NumPy: what a program that is watched hands out behind its outputs: what it computed in each row. In NumPy."""

from __future__ import annotations

import numpy as np

from tests.oracles.program.meters import shown
from volumetric.base._typing import Array
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.watch_outputs import writable_edges


def watch(facts: Facts, computed: Array, acted: Array, canvas: Array, states: dict[str, Array]) -> Array:
    """Return what is watched of a row, ``[B, columns]``.

    Parameters
    ----------
    computed, acted : how often each region, and each edge, computed in it, ``[B, regions]`` and ``[B, edges]``
    canvas, states : behind the row
    """
    strength: list[Array] = []
    meters: list[Array] = []
    for place in facts.places:
        held = states[f"{place.name}.values"] if place.through == "memory" else canvas[:, place.positions]
        with np.errstate(over="ignore", invalid="ignore"):
            strength.append(np.sqrt(np.square(held).mean((1, 2)))[:, None])
        if place.meter is not None:
            meters.append(shown(place.meter, states[f"{place.name}.meter"]))
    return np.concatenate([computed, acted * writable_edges(facts), *strength, *meters], axis=1).astype(canvas.dtype)
