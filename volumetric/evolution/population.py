"""Populations of classic NEAT: genomes of nodes and connections."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import SpecError
from volumetric.evolution.breed import Innovations, breed
from volumetric.evolution.evolution_config import EvolutionConfig, GenomeConfig
from volumetric.evolution.generation_run import Run
from volumetric.evolution.genome import Genome
from volumetric.evolution.pool import KernelSettings, Pool, first_pool, settings_of
from volumetric.evolution.species import Offspring, SpeciesTable, speciate


class Population(Run[EvolutionConfig, Pool]):
    """Genomes of nodes and connections that evolve.

    Parameters
    ----------
    config : configuration of the run; `evolve` takes missing values from the problem
    seed : of all random numbers; None chooses one, see the attribute `seed`
    first : ancestor of the first generation, which has this genome and its mutations. None: minimal genomes

    Raises
    ------
    SpecError : `first` has another interface than ``config.genome``

    Examples
    --------
    >>> from volumetric.evolution import EvolutionConfig, Population, problems
    >>> population = Population(EvolutionConfig(), seed=1)
    >>> best = population.evolve(problems.xor(), generations=150)
    >>> best.fitness > 3.9
    True
    """

    def __init__(self, config: EvolutionConfig, seed: int | None = None, first: Genome | None = None) -> None:
        if first is not None:
            config = replace(config, genome=_as_wide_as(first, config.genome))
        self._ancestor = first
        super().__init__(config, seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the run atomically; see `volumetric.evolution.genome_checkpoint`."""
        from volumetric.evolution.genome_checkpoint import save

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Population:
        """Read a file of `save`; the run continues exactly as without interruption.

        Raises
        ------
        CheckpointError : the file is missing, damaged or not a checkpoint
        """
        from volumetric.evolution.genome_checkpoint import load

        return load(Path(path))

    @property
    def _settings(self) -> KernelSettings:
        return settings_of(self.config)

    def _first(self, rng: np.random.Generator) -> Pool:
        if self._ancestor is None:
            self.innovations = Innovations.after_first(self.config.genome)
            return first_pool(self.config, rng)
        if self._ancestor.interface != self.config.genome.interface:
            raise SpecError(
                f"the first genome has {self._ancestor.interface}, but the configuration has "
                f"{self.config.genome.interface}"
            )
        self.innovations: Innovations = Innovations.after(self._ancestor)
        size = self.config.population
        parents = np.tile(np.array([0, -1, 0], np.int64), (size, 1))
        mutates = np.ones(size, np.uint8)
        mutates[0] = 0
        self.innovations.begin_generation(size)
        key = rng.integers(0, 1 << 64, dtype=np.uint64)
        return breed(Pool.of([self._ancestor]), parents, mutates, 0, key, self._settings, self.innovations)

    def children_of(self, offspring: Offspring, first_id: int, key: np.uint64) -> Pool:
        self.innovations.begin_generation(self.config.population)
        return breed(self.pool, offspring.parents, offspring.mutates, first_id, key, self._settings, self.innovations)

    def _speciate(
        self, pool: Pool, table: SpeciesTable, representatives: NDArray[np.int64], generation: int
    ) -> SpeciesTable:
        return speciate(pool, table, self.pool.take(representatives), generation, self._settings)

    def _check_fit(self, config: EvolutionConfig) -> None:
        mine, needed = self.pool.interface, config.genome.interface
        if mine != needed:
            raise SpecError(
                f"genomes of generation {self.generation} have {mine}, but the problem needs {needed}",
                hint="create a new population for this problem",
            )

    def size_of(self, genome: Genome) -> tuple[int, int]:
        return genome.hidden, int(genome.connections["enabled"].sum())

    def sizes_of(self, pool: Pool) -> NDArray[np.int64]:
        used = np.arange(pool.connections.shape[1]) < pool.sizes[:, 1:]
        enabled = (pool.connections["enabled"] & used).sum(axis=1)
        return np.stack([pool.sizes[:, 0] - pool.interface.outputs, enabled], axis=1)


def _as_wide_as(first: Genome, config: GenomeConfig) -> GenomeConfig:
    """Return `config` with missing widths from a genome."""
    inputs = first.interface.inputs if config.inputs is None else config.inputs
    outputs = first.interface.outputs if config.outputs is None else config.outputs
    return replace(config, inputs=inputs, outputs=outputs)
