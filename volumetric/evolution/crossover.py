"""Crossover of two genomes."""

from __future__ import annotations

import numpy as np

from volumetric.evolution.breed import breed
from volumetric.evolution.config import EvolutionConfig
from volumetric.evolution.genome import Genome
from volumetric.evolution.innovation import Innovations
from volumetric.evolution.pool import Pool
from volumetric.evolution.settings import settings_of


def crossover(
    rng: np.random.Generator, fitter: Genome, other: Genome, config: EvolutionConfig, *, tie: bool = False
) -> Genome:
    """Return a child of two genomes, whose genes are lined up by innovation number.

    Matching genes come from either parent by chance; one that is disabled in a parent is disabled with the chance
    ``config.reproduction.disable`` and else enabled. Disjoint and excess genes come from the fitter parent. If both are
    equally fit (`tie`), each comes with chance ½ from the parent that has it, unless it would close a cycle in a
    feed-forward child. Node genes come with the connections that need them.
    """
    parents = np.array([[0, 1, tie]], np.int64)
    key = rng.integers(0, 1 << 64, dtype=np.uint64)
    nothing_new = Innovations(np.zeros(3, np.int64))
    pool = Pool.of([fitter, other])
    return breed(pool, parents, np.zeros(1, np.uint8), 0, key, settings_of(config), nothing_new).genome(0)
