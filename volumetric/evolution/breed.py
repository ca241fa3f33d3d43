"""Breeding: children of a pool in one compiled call, mutation, crossover, and historical markings of new genes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.evolution_config import EvolutionConfig, GenomeConfig
from volumetric.evolution.genes import CONNECTION
from volumetric.evolution.genome import Genome
from volumetric.evolution.pool import KernelSettings, Pool, settings_of

_EVENTS_PER_CHILD = 4  # a split adds a node and two connections, an added connection one more


def _empty_table(events: int) -> NDArray[np.int64]:
    rows = 1 << max(4, (2 * events).bit_length())
    return np.full((rows, 3), -1, np.int64)


@dataclass(slots=True, eq=False)
class Innovations:
    """Node ids and innovation numbers assigned so far, and the events of the current generation.

    Markings match within a generation, as in the NEAT paper. The same change in another generation gets a new number,
    because it has another history.

    Attributes
    ----------
    counters : int64 (next node id, next innovation number, events in the table)
    table : hash table of the generation's events, see ``volumetric.evolution.kernels.mutation.mark``
    """

    counters: NDArray[np.int64]
    table: NDArray[np.int64] = field(default_factory=lambda: _empty_table(0))

    @staticmethod
    def after_first(config: GenomeConfig) -> Innovations:
        """Return the state after the first genomes, which all have the same structure."""
        inputs, outputs = config.interface.inputs, config.interface.outputs
        connections = inputs * outputs if config.initial_connections == "full" else 0
        return Innovations(np.array([inputs + outputs, connections, 0], np.int64))

    @staticmethod
    def after(genome: Genome) -> Innovations:
        """Return the state after an external genome: its numbers are used."""
        nodes = max(genome.nodes["id"].max(initial=0) + 1, genome.interface.inputs + genome.interface.outputs)
        return Innovations(np.array([nodes, genome.connections["innovation"].max(initial=-1) + 1, 0], np.int64))

    def begin_generation(self, children: int) -> None:
        """Clear the events of the last generation and reserve space for `children` mutations."""
        self.table = _empty_table(_EVENTS_PER_CHILD * children)
        self.counters[2] = 0

    def reserve(self, children: int) -> None:
        """Reserve space for `children` more mutations within the generation."""
        from volumetric.evolution.kernels.mutation import rehash

        events = int(self.counters[2]) + _EVENTS_PER_CHILD * children
        if 2 * events > len(self.table):
            table = _empty_table(2 * events)
            rehash(self.table, table)
            self.table = table


IntArray = NDArray[np.int64]


def breed(
    pool: Pool,
    parents: IntArray,
    mutates: NDArray[np.uint8],
    first_id: int,
    key: np.uint64,
    settings: KernelSettings,
    innovations: Innovations,
) -> Pool:
    """Return one child for each row of `parents`; `innovations` must have space for them.

    Parameters
    ----------
    parents : int64 [children, 3]: row of the fitter parent, row of the other or -1, and 1 if they are equally fit
    mutates : uint8 [children]; 0: the child is not mutated
    first_id : id of the first child; with `key` it selects the random stream of each child
    """
    from volumetric.evolution.kernels import breeding

    first, second, tie = parents.T
    # Equally fit parents may both contribute all genes; otherwise unmatched genes come from the fitter parent.
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

    In this order, each with its probability in `config.mutation`: split an enabled connection with a node (weight 1
    into it, the old weight out of it, the old connection disabled), connect two nodes, delete a hidden node, delete a
    connection; then vary weights, biases, activations and aggregations gene by gene.

    Parameters
    ----------
    innovations : numbers new genes; equal changes within a generation get equal numbers
    """
    innovations.reserve(1)
    key = rng.integers(0, 1 << 64, dtype=np.uint64)
    clone = np.array([[0, -1, 0]], np.int64)
    return breed(Pool.of([genome]), clone, np.ones(1, np.uint8), 0, key, settings_of(config), innovations).genome(0)


def crossover(
    rng: np.random.Generator, fitter: Genome, other: Genome, config: EvolutionConfig, *, tie: bool = False
) -> Genome:
    """Return a child of two genomes, whose genes are aligned by innovation number.

    Matching genes come from a random parent; a gene that is disabled in either parent is disabled with the probability
    ``config.reproduction.disable``, else enabled. Disjoint and excess genes come from the fitter parent. If both are
    equally fit (`tie`), each is inherited with probability ½, unless it would close a cycle in a feed-forward child.
    Node genes come with the connections that need them.
    """
    parents = np.array([[0, 1, tie]], np.int64)
    key = rng.integers(0, 1 << 64, dtype=np.uint64)
    nothing_new = Innovations(np.zeros(3, np.int64))
    pool = Pool.of([fitter, other])
    return breed(pool, parents, np.zeros(1, np.uint8), 0, key, settings_of(config), nothing_new).genome(0)
