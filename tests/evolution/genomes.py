"""Genomes for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volumetric.evolution import EvolutionConfig, Genome, GenomeConfig, MutationConfig
from volumetric.evolution.genes import CONNECTION, NODE, GenomeInterface

STILL = MutationConfig(
    add_node=0, add_connection=0, weight_rate=0, weight_replace=0, bias_rate=0, bias_replace=0, enabled_rate=0
)
"""Changes nothing; tests switch on what they look at."""


def genome(
    connections: Sequence[tuple[int, int, int, float, bool]],
    *,
    hidden: Sequence[int] = (),
    recurrent: bool = False,
    inputs: int = 2,
    outputs: int = 1,
) -> Genome:
    """A genome with connections (innovation, source, target, weight, enabled) and biases of 0."""
    ids = [*range(inputs, inputs + outputs), *hidden]
    return Genome(
        interface=GenomeInterface(inputs=inputs, outputs=outputs, recurrent=recurrent),
        nodes=np.array([(node, 0, 0, 0.0) for node in ids], NODE),
        connections=np.array(list(connections), CONNECTION),
    )


def config(mutation: MutationConfig = STILL, *, recurrent: bool = False, population: int = 30) -> EvolutionConfig:
    return EvolutionConfig(population=population, mutation=mutation, genome=GenomeConfig(recurrent=recurrent))


def ends(genome: Genome) -> list[tuple[int, int]]:
    return list(zip(genome.connections["source"].tolist(), genome.connections["target"].tolist(), strict=True))


def marks(genome: Genome) -> list[int]:
    return genome.connections["innovation"].tolist()
