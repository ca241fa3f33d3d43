"""Genomes in three arrays, and a configuration as records, for compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.evolution_config import EvolutionConfig
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS, CONNECTION, NODE, GenomeInterface, Records
from volumetric.evolution.genome import Genome

if TYPE_CHECKING:
    from volumetric.evolution.linked_pool import LinkedPool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Genomes of one kind, padded to the same number of genes.

    Attributes
    ----------
    interface : shared interface of the genomes
    nodes : `NODE` records [genomes, max nodes], sorted by id
    connections : `CONNECTION` records [genomes, max connections], sorted by innovation
    sizes : int64 [genomes, 2]; numbers of used nodes and connections in a row
    """

    interface: GenomeInterface
    nodes: Records
    connections: Records
    sizes: NDArray[np.int64]
    _links: LinkedPool | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.sizes)

    @staticmethod
    def empty(interface: GenomeInterface, genomes: int, nodes: int, connections: int) -> Pool:
        """Allocate a pool for `genomes` with at most `nodes` and `connections`; its contents are undefined."""
        return Pool(
            interface=interface,
            nodes=np.empty((genomes, max(nodes, 1)), NODE),
            connections=np.empty((genomes, max(connections, 1)), CONNECTION),
            sizes=np.zeros((genomes, 2), np.int64),
        )

    @staticmethod
    def of(genomes: Sequence[Genome]) -> Pool:
        """Pack genomes; all must have the interface of the first."""
        nodes = max(len(genome.nodes) for genome in genomes)
        connections = max(len(genome.connections) for genome in genomes)
        pool = Pool.empty(genomes[0].interface, len(genomes), nodes, connections)
        for row, genome in enumerate(genomes):
            pool.sizes[row] = len(genome.nodes), len(genome.connections)
            pool.nodes[row, : len(genome.nodes)] = genome.nodes
            pool.connections[row, : len(genome.connections)] = genome.connections
        return pool

    def genome(self, row: int) -> Genome:
        """Return a copy of one genome."""
        nodes, connections = self.sizes[row].tolist()
        return Genome(
            interface=self.interface,
            # Copy bytes: NumPy copies records field by field, which takes five times as long.
            nodes=np.frombuffer(self.nodes[row, :nodes].tobytes(), NODE),
            connections=np.frombuffer(self.connections[row, :connections].tobytes(), CONNECTION),
        )

    def lend_genome(self, row: int) -> Genome:
        """Return one genome that uses the shared links of the pool, which are computed once.

        It keeps this pool in memory.
        """
        genome = self.genome(row)
        object.__setattr__(genome, "_home", (self, row))
        return genome

    @property
    def links(self) -> LinkedPool:
        """The linked genomes."""
        return self.linked(1) if self._links is None else self._links

    def linked(self, threads: int) -> LinkedPool:
        """Return the linked genomes for `threads` threads, if there is enough work for them."""
        from volumetric.evolution.linked_pool import LinkedPool

        if self._links is None or self._links.threads != threads:
            # Link a second object with the same arrays: a reference cycle would delay freeing.
            twin = _pool(self.interface, self.nodes, self.connections, self.sizes)
            object.__setattr__(self, "_links", LinkedPool(twin, threads=threads))
        assert self._links is not None
        return self._links

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without links."""
        return _pool, (self.interface, self.nodes, self.connections, self.sizes)

    def concatenate(self, other: Pool) -> Pool:
        """Return these genomes, then those of another pool with the same interface."""
        rooms = [np.array(pool.nodes.shape[1:] + pool.connections.shape[1:]) for pool in (self, other)]
        nodes, connections = np.maximum(*rooms).tolist()
        both = Pool.empty(self.interface, len(self) + len(other), nodes, connections)
        for start, pool in ((0, self), (len(self), other)):
            both.nodes[start : start + len(pool), : pool.nodes.shape[1]] = pool.nodes
            both.connections[start : start + len(pool), : pool.connections.shape[1]] = pool.connections
            both.sizes[start : start + len(pool)] = pool.sizes
        return both

    def take(self, rows: NDArray[np.int64]) -> Pool:
        """Return a copy of some genomes, padded to the largest."""
        sizes = self.sizes[rows]
        nodes, connections = sizes.max(axis=0, initial=1)
        return Pool(
            interface=self.interface,
            nodes=self.nodes[rows, :nodes],
            connections=self.connections[rows, :connections],
            sizes=sizes,
        )


def _pool(interface: GenomeInterface, nodes: Records, connections: Records, sizes: NDArray[np.int64]) -> Pool:
    return Pool(interface=interface, nodes=nodes, connections=connections, sizes=sizes)


def first_pool(config: EvolutionConfig, rng: np.random.Generator) -> Pool:
    """Return the first generation: one minimal structure, with random weights and biases."""
    interface, mutation = config.genome.interface, config.mutation
    inputs, outputs = interface.inputs, interface.outputs
    full = config.genome.initial_connections == "full"
    count = inputs * outputs if full else 0
    pool = Pool.empty(interface, config.population, outputs, count)
    pool.sizes[:] = outputs, count
    pool.nodes["id"] = np.arange(inputs, inputs + outputs)
    pool.nodes["activation"] = ACTIVATIONS.index(config.genome.activations[1])
    pool.nodes["aggregation"] = AGGREGATIONS.index(config.genome.aggregation)
    biases = rng.normal(mutation.bias_mean, mutation.bias_stdev, pool.nodes.shape)
    pool.nodes["bias"] = biases.clip(mutation.bias_min, mutation.bias_max)
    if full:
        pool.connections["innovation"] = np.arange(count)
        pool.connections["source"] = np.repeat(np.arange(inputs), outputs)
        pool.connections["target"] = np.tile(pool.nodes["id"][0], inputs)
        weights = rng.normal(mutation.weight_mean, mutation.weight_stdev, pool.connections.shape)
        pool.connections["weight"] = weights.clip(mutation.weight_min, mutation.weight_max)
        pool.connections["enabled"] = True
    return pool


_PARAMETER = ("rate", "replace", "power", "mean", "stdev", "min", "max")
_RATES = (
    "add_node", "add_connection", "delete_node", "delete_connection",
    *(f"weight_{name}" for name in _PARAMETER), *(f"bias_{name}" for name in _PARAMETER),
    "enabled_rate", "activation_rate", "aggregation_rate",
)  # fmt: skip
_SETTINGS = np.dtype(
    [(name, "f8") for name in (*_RATES, "disable_rate")]
    + [(name, "i8") for name in ("inputs", "outputs", "activation", "aggregation", "recurrent")]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelSettings:
    """A configuration in the form of the kernels.

    Attributes
    ----------
    record : one record of rates, limits and sizes
    activations, aggregations : uint8 codes that mutation chooses from
    coefficients : float64 (c₁, c₂, c₃, small genome) of the compatibility distance
    species_target, threshold_step : as in `SpeciesConfig`
    """

    record: Records
    activations: NDArray[np.uint8]
    aggregations: NDArray[np.uint8]
    coefficients: NDArray[np.float64]
    species_target: int
    threshold_step: float


@lru_cache(maxsize=16)
def settings_of(config: EvolutionConfig) -> KernelSettings:
    """Convert `config`; the arrays are shared and read-only by convention."""
    record = np.zeros(1, _SETTINGS)
    for name in _RATES:
        record[name] = getattr(config.mutation, name)
    record["disable_rate"] = config.reproduction.disable
    interface = config.genome.interface
    record["inputs"], record["outputs"] = interface.inputs, interface.outputs
    record["activation"] = ACTIVATIONS.index(config.genome.activations[0])
    record["aggregation"] = AGGREGATIONS.index(config.genome.aggregation)
    record["recurrent"] = config.genome.recurrent
    species = config.species
    return KernelSettings(
        record=record,
        activations=np.array([ACTIVATIONS.index(name) for name in config.mutation.activations], np.uint8),
        aggregations=np.array([AGGREGATIONS.index(name) for name in config.mutation.aggregations], np.uint8),
        coefficients=np.array([species.excess, species.disjoint, species.weight, species.small_genome], np.float64),
        species_target=species.target,
        threshold_step=species.threshold_step,
    )
