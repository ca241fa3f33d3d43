"""Runs with several objectives: fronts, checkpoints, failures, both kinds of genomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import ShapeError, SpecError
from volumetric.evolution import (
    Budget,
    Cohort,
    EvaluationError,
    EvolutionConfig,
    Genome,
    GridConfig,
    GridGenome,
    GridPopulation,
    History,
    MutationConfig,
    ParetoRun,
    Population,
    Workers,
    batched,
)
from volumetric.evolution.nsga import front_ranks
from volumetric.evolution.problems import xor
from volumetric.evolution.reporters import EvaluationFailed, FrontEvaluated
from volumetric.layers import Dense
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid

SMALL = EvolutionConfig(population=40)
X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


def error_and_size(genome: Genome, rng: np.random.Generator) -> tuple[float, float]:
    error = float(((genome.activate(X)[:, 0] - [0, 1, 1, 0]) ** 2).sum())
    return -error, -float(genome.connections["enabled"].sum())


def same(first: ParetoRun, second: ParetoRun) -> bool:
    assert first.objectives is not None
    assert second.objectives is not None
    return np.array_equal(first.objectives, second.objectives) and first.front == second.front


@pytest.mark.thorough
def test_small_and_exact_genomes_are_both_found() -> None:
    growing = EvolutionConfig(population=80, mutation=MutationConfig(add_node=0.2, add_connection=0.3))
    run = ParetoRun(Population(growing, seed=2))
    front = run.evolve(error_and_size, generations=80)
    errors, sizes = np.array([point.objectives for point in front]).T
    assert errors.max() > -0.5  # better than any structure without a hidden node
    assert sizes.max() >= -2  # by the first structure or less
    assert (np.diff(errors) > 0).all()
    assert (np.diff(sizes) < 0).all()
    for point in front:
        assert error_and_size(point.genome, np.random.default_rng()) == point.objectives


def test_who_lives_on_is_never_dominated_by_who_does_not() -> None:
    run = ParetoRun(Population(SMALL, seed=3))
    run.evolve(error_and_size, generations=3)
    before = run.objectives
    cohort = run.ask()
    objectives = np.array([error_and_size(cohort.genome(row), cohort.rng(row)) for row in range(len(cohort))])
    run.tell(objectives)
    assert before is not None
    assert run.objectives is not None
    ranks = front_ranks(np.concatenate([before, objectives]))
    assert len(run.objectives) == 40
    front = {tuple(row) for row in run.objectives.tolist()}
    best = {tuple(row) for row in np.concatenate([before, objectives])[ranks == 0].tolist()}
    assert best <= front or (ranks == 0).sum() > 40


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    whole, part = ParetoRun(Population(SMALL, seed=5)), ParetoRun(Population(SMALL, seed=5))
    whole.evolve(error_and_size, generations=12)
    part.evolve(error_and_size, generations=5, checkpoint=tmp_path / "run.npz")
    resumed = ParetoRun(Population.load(tmp_path / "run.npz"))
    assert same(part, resumed)
    resumed.evolve(error_and_size, generations=7)
    assert same(whole, resumed)
    assert np.array_equal(whole.ids, resumed.ids)


@pytest.mark.thorough
def test_workers_give_the_same_front() -> None:
    alone, shared = ParetoRun(Population(SMALL, seed=5)), ParetoRun(Population(SMALL, seed=5))
    alone.evolve(error_and_size, generations=2)
    with Workers(1) as workers:
        shared.evolve(error_and_size, generations=2, executor=workers)
    assert same(alone, shared)


def grid_objectives(genome: GridGenome, rng: np.random.Generator) -> tuple[float, float]:
    y = genome.forward(X.astype(np.float32))[:, 0]
    return -float(((y - [0, 1, 1, 0]) ** 2).sum()), -float(len(genome.network.layers))


def test_grids_have_fronts_too(tmp_path: Path) -> None:
    layers = {
        Coord(0): Dense(in_features=2, out_features=4, activation="tanh"),
        Coord(3): Dense(in_features=4, out_features=1),
    }
    network = Network(grid=Grid(4), layers=layers, input_shape=(2,), input_dtype="float32")
    config = GridConfig(population=10)
    whole, part = (ParetoRun(GridPopulation(config, network, seed=1)) for _ in range(2))
    whole.evolve(grid_objectives, generations=4)
    part.evolve(grid_objectives, generations=2, checkpoint=tmp_path / "run.npz")
    resumed = ParetoRun(GridPopulation.load(tmp_path / "run.npz"))
    resumed.evolve(grid_objectives, generations=2)
    assert same(whole, resumed)


def sometimes(genome: Genome, rng: np.random.Generator) -> tuple[float, ...]:
    chance = rng.random()
    if chance < 0.2:
        raise ValueError("no luck")
    return (float("inf"), 0.0) if chance < 0.3 else error_and_size(genome, rng)


def test_failures_are_told_and_beaten_by_the_rest() -> None:
    history, run = History(), ParetoRun(Population(SMALL, seed=1))
    front = run.evolve(sometimes, generations=3, reporters=[history])
    reasons = {event.reason for event in history.events if isinstance(event, EvaluationFailed)}
    assert {reason.partition(" (")[0] for reason in reasons} == {"ValueError: no luck", "objectives are [inf, 0.0]"}
    failed = {event.genome for event in history.events if isinstance(event, EvaluationFailed)}
    assert not failed & {point.id for point in front}
    fronts = [event for event in history.events if isinstance(event, FrontEvaluated)]
    assert [event.generation for event in fronts] == [0, 1, 2]
    assert fronts[-1].front == tuple(point.objectives for point in front)


def test_a_problem_scores_all_at_once_and_budgets_hold() -> None:
    def score(cohort: Cohort) -> np.ndarray:
        return np.stack([xor().score_all(cohort), -cohort.pool.sizes[:, 1].astype(float)], axis=1)  # pyright: ignore[reportAttributeAccessIssue]

    run = ParetoRun(Population(SMALL, seed=1))
    run.evolve(batched(score), generations=50, budget=Budget(evaluations=170))
    assert (run.generation, run.ended) == (3, "evaluations")


def test_misuse_is_refused(tmp_path: Path) -> None:
    run = ParetoRun(Population(SMALL, seed=1))
    with pytest.raises(SpecError, match="between tell"):
        run.save(tmp_path / "x")
    with pytest.raises(ShapeError, match="objectives have shape"):
        run.tell(np.zeros(40))
    run.tell(np.zeros((40, 2)))
    with pytest.raises(SpecError, match="already"):
        run.tell(np.zeros((40, 2)))
    run.ask()
    with pytest.raises(ShapeError, match=r"expected \(40, 2\)"):
        run.tell(np.zeros((40, 3)))
    with pytest.raises(EvaluationError, match="40 of 40"):
        run.tell(np.full((40, 2), np.nan))
    with pytest.raises(EvaluationError, match="every genome: ZeroDivisionError"):
        ParetoRun(Population(SMALL, seed=1)).evolve(lambda genome, rng: [1 / 0], generations=1)
    evolved = Population(SMALL, seed=1)
    evolved.evolve(xor(), generations=1)
    with pytest.raises(SpecError, match="fresh population"):
        ParetoRun(evolved)
