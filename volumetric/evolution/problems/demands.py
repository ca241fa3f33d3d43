"""Requirements of a problem on a configuration: missing values are filled in, contradictions raise an error."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

from volumetric.base.errors import SpecError
from volumetric.evolution.evolution_config import EvolutionConfig, RunConfig

C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Requirements of a problem on genomes of nodes and connections.

    Attributes
    ----------
    problem : name in messages
    inputs : number of inputs
    outputs : allowed numbers of outputs; the first is the default
    goal : fitness that counts as solved, or None
    activation, output_activation : of new nodes and of outputs, if the configuration sets neither
    """

    problem: str
    inputs: int
    outputs: tuple[int, ...]
    goal: float | None
    activation: str = "steep_sigmoid"
    output_activation: str = "steep_sigmoid"

    def met_by(self, config: EvolutionConfig) -> EvolutionConfig:
        """Return `config` with missing values filled in.

        Raises
        ------
        SpecError : it contradicts the problem
        """
        genome = config.genome
        if genome.inputs not in (None, self.inputs):
            raise SpecError(
                f"genome.inputs is {genome.inputs}, but {self.problem} has {self.inputs}",
                hint="remove genome.inputs",
            )
        if genome.outputs not in (None, *self.outputs):
            raise SpecError(
                f"genome.outputs is {genome.outputs}, but {self.problem} takes {' or '.join(map(str, self.outputs))}",
                hint="remove genome.outputs",
            )
        named = genome.activation is not None
        genome = dataclasses.replace(
            genome,
            inputs=self.inputs,
            outputs=genome.outputs or self.outputs[0],
            activation=genome.activation or self.activation,
            output_activation=genome.output_activation or (genome.activation if named else self.output_activation),
        )
        return dataclasses.replace(with_goal(config, self.problem, self.goal), genome=genome)


def with_goal(config: C, problem: str, goal: float | None) -> C:
    """Return `config` with the goal of a problem, unless it already has one.

    Raises
    ------
    SpecError : the configuration minimises fitness, but the problem maximises it
    """
    if config.fitness_criterion != "max":
        raise SpecError(
            f'fitness_criterion is "{config.fitness_criterion}", but {problem} maximises fitness',
            hint="remove fitness_criterion",
        )
    return dataclasses.replace(config, fitness_threshold=goal) if config.fitness_threshold is None else config
