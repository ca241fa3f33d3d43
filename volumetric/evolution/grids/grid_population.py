"""Populations of grids."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from volumetric.base.rng import generator
from volumetric.evolution.genealogy import Parentage
from volumetric.evolution.generation_run import Run
from volumetric.evolution.grids.grid_config import GridConfig
from volumetric.evolution.grids.grid_crossover import crossover, distance
from volumetric.evolution.grids.grid_genome import GridGenome, GridInnovations, GridPool
from volumetric.evolution.grids.grid_mutation import mutate
from volumetric.evolution.species import Offspring, SpeciesTable, species_of_generation
from volumetric.evolution.splice import SpliceConfig, splice
from volumetric.network import Network, initialise
from volumetric.network.weight_store import Params, WeightStore

_FIRST_WEIGHTS = 1 << 32
"""Seeds of the first weights are above the seeds that the run itself draws."""


class GridPopulation(Run[GridConfig, GridPool]):
    """Networks that evolve in structure and weights.

    Parameters
    ----------
    config : configuration of the run
    network : structure of the first genomes; layers can be added in free slots of its grid
    params : weights of the first genome, of which the others are mutations; None: fresh weights for each
    seed : of all random numbers; None chooses one, see the attribute `seed`
    """

    def __init__(
        self,
        config: GridConfig,
        network: Network,
        params: Mapping[str, WeightStore] | None = None,
        seed: int | None = None,
    ) -> None:
        self._start = (network, params)
        super().__init__(config, seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the run atomically; see `volumetric.evolution.grids.grid_checkpoint`."""
        from volumetric.evolution.grids.grid_checkpoint import save

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> GridPopulation:
        """Read a file of `save`; the run continues exactly as without interruption.

        Raises
        ------
        CheckpointError : the file is missing, damaged or not a checkpoint of grids
        """
        from volumetric.evolution.grids.grid_checkpoint import load

        return load(Path(path))

    def _first(self, rng: np.random.Generator) -> GridPool:
        network, params = self._start
        self.innovations: GridInnovations = GridInnovations(next=len(network.layers) + len(network.links))
        size = self.config.population
        if params is None:
            seeds = (_FIRST_WEIGHTS + rng.integers(1 << 32, size=size)).tolist()
            return GridPool(tuple(GridGenome.first(network, initialise(network, seed=seed)) for seed in seeds))
        first = GridGenome.first(network, Params({key: params[key] for key in network.param_specs()}))
        key = rng.integers(1 << 32)
        rest = (self._mutate(first, generator(int(key), child)) for child in range(1, size))
        return GridPool((first, *rest))

    @property
    def _keeps_clones(self) -> bool:
        return self.config.algorithm == "neat"

    def children_of(self, offspring: Offspring, first_id: int, key: np.uint64) -> GridPool:
        self.innovations.begin_generation()
        parents = offspring.parents if self.config.algorithm == "neat" else self._elite_parents(key)
        mutates = offspring.mutates if self.config.algorithm == "neat" else (parents[:, 1] >= 0).astype(np.uint8)
        if self.config.algorithm == "elites":
            ids = (self.generation * self.config.population) + np.arange(len(self.pool))
            self._genealogy.parentage = Parentage.of(Offspring(parents=parents, mutates=mutates), ids)
        children = []
        for child, ((first, second, _), changes) in enumerate(zip(parents.tolist(), mutates.tolist(), strict=True)):
            rng = generator(int(key), first_id + child)
            genome = self.pool.genome(first)
            if second >= 0 and self.config.algorithm == "elites":
                genome = self._splice(first, second, int(rng.integers(1 << 32)))
            elif second >= 0:
                genome = crossover(genome, self.pool.genome(second), rng, disable=self.config.reproduction.disable)
            children.append(self._mutate(genome, rng) if changes else genome)
        return GridPool(tuple(children))

    def _speciate(
        self, pool: GridPool, table: SpeciesTable, representatives: NDArray[np.int64], generation: int
    ) -> SpeciesTable:
        rules = self.config.species
        fronts = [self.pool.genome(row) for row in representatives.tolist()]
        member = np.empty(len(pool), np.int64)
        for row in range(len(pool)):
            genome = pool.genome(row)
            near = (i for i, front in enumerate(fronts) if distance(genome, front, rules) < table.threshold)
            place = next(near, len(fronts))
            if place == len(fronts):
                fronts.append(genome)
            member[row] = place
        founded = len(fronts) - len(representatives)
        return species_of_generation(table, member, founded, generation, rules.target, rules.threshold_step)

    def size_of(self, genome: GridGenome) -> tuple[int, int]:
        network = genome.network
        return len(network.layers) - len(network.disabled), len(network.links)

    def _mutate(self, genome: GridGenome, rng: np.random.Generator) -> GridGenome:
        return mutate(genome, self.config.mutation, self.innovations, rng)

    def _elite_parents(self, key: np.uint64) -> NDArray[np.int64]:
        """Return parents in the form of `Offspring`: the best quarter, then pairs of different ones for children."""
        size = self.config.population
        elites = np.argsort(-self.score, kind="stable")[: max(1, size // 4)]
        rng = generator(int(key))
        parents = np.full((size, 3), -1, np.int64)
        parents[: len(elites), 0] = elites
        for child in range(len(elites), size):
            pair = rng.choice(elites, 2, replace=len(elites) < 2)
            parents[child, :2] = sorted(pair.tolist(), key=lambda row: -self.score[row])
        return parents

    def _splice(self, first: int, second: int, seed: int) -> GridGenome:
        """Blend two parents by similarity and fitness; the first is the template."""
        a, b = self.pool.genome(first), self.pool.genome(second)
        fitness = (float(self.score[first]), float(self.score[second]))
        child = splice((a.network, a.params), (b.network, b.params), SpliceConfig(seed=seed), fitness=fitness)
        return GridGenome(
            network=child.network, params=child.params, markings=a.markings, link_markings=a.link_markings
        )
