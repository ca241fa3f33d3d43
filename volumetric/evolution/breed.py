"""Children: of a pool in one compiled call, of one genome by mutation, of two by crossover."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.config import EvolutionConfig
from volumetric.evolution.genes import CONNECTION
from volumetric.evolution.genome import Genome
from volumetric.evolution.innovation import Innovations
from volumetric.evolution.pool import Pool
from volumetric.evolution.settings import Settings, settings_of

IntArray = NDArray[np.int64]


def breed(
    pool: Pool,
    parents: IntArray,
    mutates: NDArray[np.uint8],
    first_id: int,
    key: np.uint64,
    settings: Settings,
    innovations: Innovations,
) -> Pool:
    """Return one child for each row of `parents`; `innovations` must have room for them.

    Parameters
    ----------
    parents : int64 [children, 3]: row of the fitter parent, row of the other or -1, and 1 if they are equally fit
    mutates : uint8 [children]; 0 leaves a child as it was inherited
    first_id : id of the first child; with `key` it names the random stream of each child
    """
    from volumetric.kernels.cpu import breeding

    first, second, tie = parents.T
    # Equally fit parents may both give all they have; otherwise all genes come from the fitter one.
    nodes, connections = (pool.sizes[first] + pool.sizes[second] * tie[:, None]).max(axis=0)
    children = Pool.empty(pool.interface, len(parents), int(nodes) + 1, int(connections) + 3)
    breeding.breed(
        pool.nodes, pool.connections, pool.sizes, parents, mutates, first_id, key, settings.record,
        settings.activations, settings.aggregations, innovations.table, innovations.counters,
        np.zeros(1, CONNECTION), np.zeros(int(nodes) + 2, np.uint8),
        children.nodes, children.connections, children.sizes,
    )  # fmt: skip
    return children


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
