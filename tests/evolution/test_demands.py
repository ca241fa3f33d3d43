"""Problems fill in what a configuration leaves open, and refuse what contradicts them."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.evolution import EvolutionConfig, GenomeConfig, Population
from volumetric.evolution.evolution_job import FUNCTIONS
from volumetric.evolution.problems import Table, function, xor


def test_what_is_left_out_is_filled_in_and_filling_in_again_changes_nothing() -> None:
    config = xor().configure(EvolutionConfig())
    assert (config.genome.inputs, config.genome.outputs, config.fitness_threshold) == (2, 1, 3.9)
    assert xor().configure(config) == config


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (EvolutionConfig(genome=GenomeConfig(inputs=3)), "genome.inputs is 3"),
        (EvolutionConfig(genome=GenomeConfig(outputs=2)), "genome.outputs is 2"),
        (EvolutionConfig(fitness_criterion="min"), "fitness_criterion"),
    ],
)
def test_what_contradicts_the_problem_is_refused(config: EvolutionConfig, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        xor().configure(config)
    with pytest.raises(SpecError, match=text):
        Population(config, seed=1).evolve(xor(), 1)


def test_a_goal_of_ones_own_stays() -> None:
    assert xor().configure(EvolutionConfig(fitness_threshold=1.0)).fitness_threshold == 1.0


@pytest.mark.parametrize(
    ("targets", "given", "expected"),
    [
        ([0.0, 1.0], GenomeConfig(), ("steep_sigmoid", "steep_sigmoid")),
        ([0.0, 1.1], GenomeConfig(), ("tanh", "linear")),
        ([-0.1, 1.0], GenomeConfig(), ("tanh", "linear")),
        ([-5.0, 5.0], GenomeConfig(activation="relu"), ("relu", "relu")),
        ([-5.0, 5.0], GenomeConfig(output_activation="square"), ("tanh", "square")),
        ([-5.0, 5.0], GenomeConfig(activation="sin", output_activation="tanh"), ("sin", "tanh")),
    ],
)
def test_outputs_reach_the_targets(targets: list[float], given: GenomeConfig, expected: tuple[str, str]) -> None:
    table = Table.of(np.zeros((2, 1)), np.array(targets)[:, None])
    assert table.configure(EvolutionConfig(genome=given)).genome.activations == expected


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sin", "exp"])
def test_functions_beyond_0_to_1_are_learned_by_default(name: str) -> None:
    problem = function(FUNCTIONS[name])
    unexplained = -Population(EvolutionConfig(), seed=1).evolve(problem, 40).fitness / problem.targets.size
    assert unexplained < 0.2 * problem.targets.var()  # with outputs in 0 … 1 half of the sine and 0.9 of exp remain


def test_nodes_that_come_later_are_not_like_outputs() -> None:
    run = Population(EvolutionConfig(population=60), seed=1)
    run.evolve(function(FUNCTIONS["sin"]), 10)
    kinds = {(int(node["id"]) < 2, int(node["activation"])) for genome in run.genomes for node in genome.nodes}
    assert len({is_output for is_output, _ in kinds}) == len(kinds) == 2
