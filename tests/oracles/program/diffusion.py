"""In NumPy: noise that training puts on what diffusive regions hold: with it they learn to tell the clean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.oracles.program.carriers import noised
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.graph.operations.noise import normal
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.recipes import diffusing_regions, stream_at


def noise_in(facts: Facts, streams: int, length: int, training: Training) -> dict[int, Array]:
    """Return the noise ε of each row: region → ``[streams, T, N, d]``, by the key of the pass."""
    found: dict[int, Array] = {}
    for place in diffusing_regions(facts):
        each = (length, len(place.positions), facts.program.canvas.width)
        first = training.first * int(np.prod(each))
        found[place.index] = normal((streams, *each), training.noise, stream_at(training.path, place), first)
    return found


def diffused(
    facts: Facts, before: Array, noise: Mapping[int, Array], levels: Mapping[int, Array], fires: Array
) -> Array:
    """Put noise on the content x₀ of regions that fire, before a step: ``√ᾱ x₀ + √(1 - ᾱ) ε``.

    This is how content gets to a level of noise in one step (Ho et al. 2020, arXiv 2006.11239, equation 4).

    Parameters
    ----------
    before : the canvas, ``[B, positions, d]``; a position of several such regions gets what the last one makes of it
    noise : region → ε ``[B, N, d]``
    levels : region → ᾱ ``[B]``
    fires : bool ``[B, regions]``
    """
    canvas = before.copy()
    for number, of in noise.items():
        at = facts.places[number].positions
        x = before[:, at]
        y = noised(x, levels[number], of.astype(x.dtype))
        canvas[:, at] = np.where(fires[:, number, None, None], y, x)
    return canvas
