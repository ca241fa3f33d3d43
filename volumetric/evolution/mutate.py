"""Mutation of one genome."""

from __future__ import annotations

import numpy as np

from volumetric.evolution.breed import breed
from volumetric.evolution.config import EvolutionConfig
from volumetric.evolution.genome import Genome
from volumetric.evolution.innovation import Innovations
from volumetric.evolution.pool import Pool
from volumetric.evolution.settings import settings_of


def mutate(rng: np.random.Generator, genome: Genome, config: EvolutionConfig, innovations: Innovations) -> Genome:
    """Return a mutated copy.

    In this order, each with its chance of `config.mutation`: split an enabled connection with a node (weight 1 into it,
    the old weight out of it, the old connection disabled), connect two nodes, delete a hidden node, delete a
    connection; then vary weights, biases, activations and aggregations gene by gene.

    Parameters
    ----------
    innovations : numbers what is added; the same changes within its generation get the same numbers
    """
    innovations.reserve(1)
    key = rng.integers(0, 1 << 64, dtype=np.uint64)
    clone = np.array([[0, -1, 0]], np.int64)
    return breed(Pool.of([genome]), clone, np.ones(1, np.uint8), 0, key, settings_of(config), innovations).genome(0)
