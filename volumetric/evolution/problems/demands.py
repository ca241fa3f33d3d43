"""What a problem asks of a configuration: filled in where it is silent, an error where it says otherwise."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

from volumetric.base.errors import SpecError
from volumetric.evolution.config import EvolutionConfig, RunConfig

C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What genomes of nodes and connections need to be for a problem.

    Attributes
    ----------
    problem : how messages name it
    inputs : width that genomes read
    outputs : widths that they may return; the first is used where nothing else is said
    goal : fitness at which it counts as solved, or None
    activation, output_activation : of new nodes and of outputs, where the configuration names neither
    """

    problem: str
    inputs: int
    outputs: tuple[int, ...]
    goal: float | None
    activation: str = "steep_sigmoid"
    output_activation: str = "steep_sigmoid"

    def met_by(self, config: EvolutionConfig) -> EvolutionConfig:
        """Return `config` with all that it leaves open.

        Raises
        ------
        SpecError : it says something that the problem cannot be solved with
        """
        genome = config.genome
        if genome.inputs not in (None, self.inputs):
            raise SpecError(
                f"genome.inputs is {genome.inputs}, but {self.problem} has {self.inputs}",
                hint="leave genome.inputs out",
            )
        if genome.outputs not in (None, *self.outputs):
            raise SpecError(
                f"genome.outputs is {genome.outputs}, but {self.problem} takes {' or '.join(map(str, self.outputs))}",
                hint="leave genome.outputs out",
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
    """Return `config` with the goal of a problem unless it has one of its own.

    Raises
    ------
    SpecError : the configuration looks for little fitness, and that of the problem is better the more there is
    """
    if config.fitness_criterion != "max":
        raise SpecError(
            f'fitness_criterion is "{config.fitness_criterion}", but of {problem} more fitness is better',
            hint="leave fitness_criterion out",
        )
    return dataclasses.replace(config, fitness_threshold=goal) if config.fitness_threshold is None else config
