"""Samples know nothing of each other, whatever layers a grid has."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.evolution.evaluate import Cohort, evaluate
from volumetric.evolution.grids.grid_config import GridConfig, GridMutationConfig
from volumetric.evolution.grids.grid_genome import ROWS, GridGenome, GridPool
from volumetric.evolution.grids.grid_population import GridPopulation
from volumetric.evolution.grids.layer_factories import fitting
from volumetric.evolution.problems.sample_problem import SampleProblem
from volumetric.layers import GRU, LSTM, RNN, Dense, LayerSpec, MultiHeadAttention
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.train.problems import Problem, spirals, xor

AROUND: list[LayerSpec] = [
    RNN(input_size=2, hidden_size=4),
    LSTM(input_size=2, hidden_size=4),
    GRU(input_size=2, hidden_size=4),
    MultiHeadAttention(embed_dim=2, num_heads=1),
    MultiHeadAttention(embed_dim=2, num_heads=1, causal=False),
]
KINDS = [f"{layer.kind}{i}" for i, layer in enumerate(AROUND)]


def grid_of(layer: LayerSpec, outputs: int = 3) -> GridGenome:
    width = 2 if isinstance(layer, MultiHeadAttention) else 4
    layers: dict[Coord, LayerSpec] = {Coord(0): layer, Coord(1): Dense(in_features=width, out_features=outputs)}
    network = Network(grid=Grid(4), layers=layers, input_shape=(2,), input_dtype="float32")
    return GridGenome.first(network, initialise(network, seed=3))


def cohort_of(*genomes: GridGenome) -> Cohort:
    return Cohort(pool=GridPool(genomes), generation=0, first_id=0, seed=1)


@pytest.mark.parametrize("layer", AROUND, ids=KINDS)
@pytest.mark.parametrize("samples", [1, 7, ROWS + 3])
def test_rows_are_computed_as_if_each_were_alone(layer: LayerSpec, samples: int, rng: np.random.Generator) -> None:
    genome, x = grid_of(layer), rng.normal(size=(samples, 2)).astype(np.float32)
    outputs = genome.predict(x)
    assert outputs.shape == (samples, 3)
    for row in (0, samples // 2, samples - 1):
        np.testing.assert_allclose(outputs[row], genome.forward(x[row : row + 1])[0], rtol=1e-5, atol=1e-6)
    order = rng.permutation(samples)
    np.testing.assert_allclose(genome.predict(x[order]), outputs[order], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", AROUND, ids=KINDS)
def test_sequences_are_computed_as_if_each_were_alone(layer: LayerSpec, rng: np.random.Generator) -> None:
    genome, x = grid_of(layer), rng.normal(size=(ROWS // 5 + 2, 5, 2)).astype(np.float32)
    outputs = genome.predict(x)
    for row in (0, 100, len(x) - 1):
        np.testing.assert_allclose(outputs[row], genome.forward(x[row]), rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("layer", AROUND, ids=KINDS)
def test_fitness_is_that_of_strangers(layer: LayerSpec, epochs: int, rng: np.random.Generator) -> None:
    data = spirals(samples=60)
    problem = SampleProblem(learning=data, epochs=epochs)
    scores = problem.score_all(cohort_of(grid_of(layer)))
    assert scores.failures == ()
    if not epochs:
        order = rng.permutation(60)
        mixed = dataclasses.replace(data, inputs=data.inputs[order], targets=data.targets[order])
        again = SampleProblem(learning=mixed).score_all(cohort_of(grid_of(layer)))
        np.testing.assert_array_equal(again.fitness, scores.fitness)


def test_no_layer_looks_at_other_samples_unless_they_are_sequences(rng: np.random.Generator) -> None:
    def kinds(shape: tuple[int, ...], rules: GridMutationConfig) -> set[str]:
        return {spec.kind for spec in fitting(shape, shape, rules, ids=False, rng=rng)}

    around = {"rnn", "lstm", "gru", "multi_head_attention"}
    rows, anything = GridMutationConfig(sequences=False), GridMutationConfig()
    assert kinds((-1, 4), anything) >= around
    assert not kinds((-1, 4), rows) & around
    assert kinds((-1, 4), rows) == kinds((-1, 4), anything) - around
    assert kinds((-1, 3, 4), rows) == kinds((-1, 3, 4), anything) >= around  # its rows are strangers anyway


def test_the_data_say_whether_rows_are_sequences() -> None:
    steps = Problem(inputs=np.zeros((6, 5, 2), np.float32), targets=np.zeros((6, 5, 1), np.float32))
    assert SampleProblem(learning=spirals()).configure(GridConfig()).mutation.sequences is False
    assert SampleProblem(learning=steps).configure(GridConfig()).mutation.sequences is True
    named = GridConfig(mutation=GridMutationConfig(kinds=("dense", "rnn")))
    assert SampleProblem(learning=spirals()).configure(named).mutation.sequences is True
    asked = GridConfig(mutation=GridMutationConfig(sequences=True))
    assert SampleProblem(learning=spirals()).configure(asked) == dataclasses.replace(asked, fitness_threshold=0.99)
    with pytest.raises(SpecError, match="maximises fitness"):
        SampleProblem(learning=spirals()).configure(GridConfig(fitness_criterion="min"))


@pytest.mark.thorough
def test_steps_of_sequences_are_learned(rng: np.random.Generator) -> None:
    x = rng.normal(size=(40, 6, 2)).astype(np.float32)
    learning = Problem(inputs=x, targets=np.cumsum(x[..., :1], axis=1))
    genome = grid_of(RNN(input_size=2, hidden_size=4), outputs=1)
    problem = SampleProblem(learning=learning, lr=0.02)
    plain, trained = (
        dataclasses.replace(problem, epochs=epochs).score_all(cohort_of(genome)).fitness[0] for epochs in (0, 30)
    )
    assert trained > max(0.5, plain)


def test_a_genome_that_fails_costs_the_others_nothing_wherever_it_is_scored() -> None:
    wide = Network(
        grid=Grid(1), layers={Coord(0): Dense(in_features=2, out_features=5)}, input_shape=(2,), input_dtype="float32"
    )
    fine = grid_of(RNN(input_size=2, hidden_size=4), outputs=1)
    cohort = cohort_of(fine, GridGenome.first(wide, initialise(wide)), fine)
    problem = SampleProblem(learning=xor(), epochs=1, held=0.5)
    alone = evaluate(problem, cohort)
    assert [failure.genome for failure in alone.failures] == [1]
    assert "shape" in alone.failures[0].reason
    assert alone.fitness[0] == alone.fitness[2]
    with ThreadPoolExecutor(2) as pool:
        shared = evaluate(problem, cohort, pool)
    np.testing.assert_array_equal(shared.fitness, alone.fitness)
    assert shared.failures == alone.failures


@pytest.mark.thorough
def test_spirals_with_training_end_with_a_champion() -> None:
    config = GridConfig.from_dict({"population": 6, "mutation": {"kind": 0.5, "add_layer": 0.5, "sequences": True}})
    layers: dict[Coord, LayerSpec] = {
        Coord(0): Dense(in_features=2, out_features=8, activation="tanh"),
        Coord(1): Dense(in_features=8, out_features=3),
    }
    network = Network(grid=Grid(2, 1, 1, 3), layers=layers, input_shape=(2,), input_dtype="float32")
    run = GridPopulation(config, network, seed=1)
    run.evolve(SampleProblem(learning=spirals(samples=60), epochs=1), 6)
    assert run.champion is not None
    kinds = {spec.kind for genome in run.genomes for spec in genome.network.layers.values()}
    assert kinds & {"rnn", "lstm", "gru", "multi_head_attention", "sequential"}
