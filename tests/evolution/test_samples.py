"""Grids that learn samples, and jobs that name them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.evolution.evolution_job import job_from, open_problem, open_run
from volumetric.evolution.grids.grid_population import GridPopulation
from volumetric.evolution.problems import Table
from volumetric.evolution.problems.sample_problem import SampleProblem, as_table
from volumetric.train.problems import spirals, waves, xor


def grid_run(kind: str, **options: object) -> tuple[GridPopulation, SampleProblem]:
    table = {"algorithm": "grid", "population": 4, "network": {"options": {"hidden": [6]}}}
    job = job_from({**table, "problem": {"kind": kind, "options": options}})
    problem = open_problem(job)
    run = open_run(job, problem)
    assert isinstance(run, GridPopulation)
    assert isinstance(problem, SampleProblem)
    return run, problem


def test_fitness_is_accuracy_or_explained_variance() -> None:
    run, problem = grid_run("spirals")
    scores = problem.score_all(run.ask()).fitness
    x, y = problem.learning.inputs, problem.learning.targets
    hits = [(genome.forward(x).argmax(1) == y).mean() for genome in run.genomes]
    np.testing.assert_allclose(scores, hits)
    run, problem = grid_run("waves")
    scores = problem.score_all(run.ask()).fitness
    values = problem.learning.targets
    expected = [1 - ((g.forward(problem.learning.inputs) - values) ** 2).mean() / values.var() for g in run.genomes]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


@pytest.mark.thorough
def test_training_is_judged_and_not_inherited() -> None:
    run, problem = grid_run("spirals", epochs=20)
    before = [store.values().copy() for store in run.genomes[0].params.values()]
    trained = problem.score_all(run.ask()).fitness
    after = [store.values() for store in run.genomes[0].params.values()]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    assert trained.mean() > replace(problem, epochs=0).score_all(run.ask()).fitness.mean()


def test_weights_cost_what_is_asked() -> None:
    run, problem = grid_run("xor")
    dear = replace(problem, cost=2.0)
    weights = sum(int(np.prod(store.shape)) for store in run.genomes[0].params.values())
    cheap, costly = (each.score_all(run.ask()).fitness for each in (problem, dear))
    np.testing.assert_allclose(cheap - costly, 2.0 * weights / 1000)


def test_room_is_added_for_layers_to_come() -> None:
    run, _ = grid_run("xor")
    network = run.genomes[0].network
    assert len(network.grid) == 3 * len(network.layers)


def test_samples_as_a_table_have_an_output_for_each_class() -> None:
    table = as_table(spirals(samples=30))
    assert isinstance(table, Table)
    assert table.targets.shape == (30, 3)
    assert (table.targets.sum(axis=1) == 1).all()
    assert as_table(waves()).targets.shape[1] == waves().targets.shape[1]


@pytest.mark.parametrize("options", [{"epochs": -1}, {"batch": 0}, {"lr": 0.0}, {"held": 1.0}, {"cost": -1.0}])
def test_impossible_samples(options: dict) -> None:
    with pytest.raises(SpecError, match="samples need"):
        SampleProblem(learning=xor(), **options)


def test_a_network_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    job = job_from({"algorithm": "grid", "network": {"options": {"inputs": 5}}, "problem": "xor"})
    with pytest.raises(SpecError, match="reads rows of shape"):
        open_run(job, open_problem(job))


def test_sequences_of_a_file_are_learned_step_by_step(tmp_path: Path, rng: np.random.Generator) -> None:
    x = rng.normal(size=(20, 5, 3)).astype(np.float32)
    np.savez(tmp_path / "steps.npz", inputs=x, targets=x[..., :1] * 2)
    table = {"algorithm": "grid", "population": 4, "problem": {"kind": "table", "npz": "steps.npz"}}
    job = job_from({**table, "network": {"options": {"hidden": [4]}}}, home=tmp_path)
    problem = open_problem(job)
    run = open_run(job, problem)
    assert isinstance(run, GridPopulation)
    assert run.config.mutation.sequences is True
    assert run.genomes[0].network.input_shape == (3,)
    assert run.evolve(problem, 2).fitness > -10
    assert run.progress.failures == ()


def test_one_value_for_each_sample_is_one_output(tmp_path: Path) -> None:
    np.savez(tmp_path / "values.npz", inputs=np.eye(4, dtype=np.float32), targets=np.arange(4) / 3)
    for algorithm in ("grid", "classic"):
        job = job_from(
            {"algorithm": algorithm, "population": 3, "problem": {"kind": "table", "npz": "values.npz"}}, home=tmp_path
        )
        problem = open_problem(job)
        run = open_run(job, problem)
        run.evolve(problem, 1)
        assert run.progress.failures == ()


def test_a_mask_is_not_ignored() -> None:
    masked = replace(waves(), mask=np.ones(len(waves().inputs), np.float32))
    for make in (as_table, lambda learning: SampleProblem(learning=learning)):
        with pytest.raises(SpecError, match="mask"):
            make(masked)


def test_room_is_for_grids() -> None:
    with pytest.raises(SpecError, match="room"):
        job_from({"room": 3})
