"""Short runs of evolution with their events, for tests of the genealogy and of what shows it."""

from __future__ import annotations

from typing import Literal

from tests.evolution.grids.test_grids import fit_xor, mlp
from volumetric.evolution import EvolutionConfig, GridConfig, GridPopulation, History, ParetoRun, Population
from volumetric.evolution.problems import xor

SMALL = EvolutionConfig(population=30, fitness_threshold=9.0)
"""A threshold that XOR does not reach: runs have all of their generations."""


def recorded(*, generations: int = 10, genealogy: bool = True, config: EvolutionConfig = SMALL) -> History:
    """Return the events of a run on XOR."""
    history = History(genealogy=genealogy)
    Population(config, seed=1).evolve(xor(), generations, reporters=[history])
    return history


def recorded_front(generations: int) -> tuple[ParetoRun, History]:
    """Return a run of 12 genomes with two objectives, an output and few hidden nodes, and its events."""
    history = History(genealogy=True)
    run = ParetoRun(Population(EvolutionConfig(population=12), seed=1))
    run.evolve(
        lambda genome: (genome.activate([0.0, 1.0])[0], -genome.hidden), generations=generations, reporters=[history]
    )
    return run, history


def recorded_grids(algorithm: Literal["neat", "elites"] = "neat") -> tuple[GridPopulation, History]:
    """Return a population of 8 grids after three generations on XOR, and its events."""
    history = History(genealogy=True)
    grids = GridPopulation(GridConfig(population=8, algorithm=algorithm), mlp(), seed=1)
    grids.evolve(fit_xor, generations=3, reporters=[history])
    return grids, history
