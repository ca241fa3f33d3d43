"""Is a point inside a disc around the middle? A fitness function for ``volumetric evolve examples/disc.toml``."""

from __future__ import annotations

import numpy as np

from volumetric.evolution import Genome

POINTS = np.random.default_rng(1).uniform(-1.0, 1.0, (200, 2))
INSIDE = (np.linalg.norm(POINTS, axis=1) < 0.7).astype(float)


def score(genome: Genome) -> float:
    """Return 1 minus the mean squared error of "inside", which is an output of 1; more is better."""
    return 1.0 - float(np.square(genome.activate(POINTS)[:, 0] - INSIDE).mean())
