"""Evolve genomes by a fitness function, with a configuration, and in a problem that exists."""

from __future__ import annotations

from volumetric.evolution import (
    Budget,
    EvolutionConfig,
    Genome,
    GenomeConfig,
    GridConfig,
    GridPopulation,
    Population,
    evolve,
    problems,
)
from volumetric.layers import Dense

X = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
Y = [0.0, 1.0, 1.0, 0.0]


def fitness(genome: Genome) -> float:
    return 4 - sum((float(genome.activate(x)[0]) - y) ** 2 for x, y in zip(X, Y, strict=True))


def short() -> None:
    result = evolve(fitness, inputs=2, outputs=1, population=20, generations=3, seed=1)
    print(result.fitness, result.champion)


def configured() -> float:
    config = EvolutionConfig(population=20, genome=GenomeConfig(inputs=2, outputs=1))
    population = Population(config, seed=1)
    champion = population.evolve(problems.xor(), 3, budget=Budget(seconds=5.0))
    print(len(champion.genome.nodes), population.species)
    return champion.fitness


if __name__ == "__main__":
    short()
    print(configured(), GridConfig, GridPopulation, Dense)
