"""Processes that hang, die or fail cost one genome each and change nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.evolution import EvaluationError, EvolutionConfig, Genome, History, Population, Workers, batched
from volumetric.evolution.problems import xor
from volumetric.evolution.reporters import EvaluationFailed

SMALL = EvolutionConfig(population=24)
X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


def noisy_xor(genome: Genome, rng: np.random.Generator) -> float:
    return 4.0 - float(((genome.activate(X)[:, 0] - [0, 1, 1, 0]) ** 2).sum()) + 0.1 * rng.normal()


def troubled(genome: Genome, rng: np.random.Generator) -> float:
    """Hangs, dies, raises or is not a number, by chance."""
    chance = rng.random()
    if chance < 0.04:
        time.sleep(600)
    if chance < 0.08:
        os._exit(3)
    if chance < 0.2:
        raise ZeroDivisionError("no luck")
    return float("nan") if chance < 0.3 else noisy_xor(genome, rng)


def raises_for_some(genome: Genome, rng: np.random.Generator) -> float:
    return 1.0 if rng.random() < 0.5 else {}["no luck"]


class DiesOnce:
    """Ends its process the first time that it is called anywhere."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, genome: Genome, rng: np.random.Generator) -> float:
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return noisy_xor(genome, rng)


LOADED: list[int] = []


def slow_at_first(genome: Genome, rng: np.random.Generator) -> float:
    """Takes long in each process once, as functions do that load kernels or import modules when they are called."""
    if not LOADED:
        time.sleep(0.5)
        LOADED.append(1)
    return noisy_xor(genome, rng)


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    with Workers(2, timeout=20.0) as workers:
        yield workers


def same(first: Population, second: Population) -> bool:
    return first.genomes == second.genomes and np.array_equal(first.score, second.score)


def test_workers_give_the_serial_run(two: Workers) -> None:
    alone, shared = Population(SMALL, seed=3), Population(SMALL, seed=3)
    alone.evolve(noisy_xor, generations=4)
    shared.evolve(noisy_xor, generations=4, executor=two)
    assert same(alone, shared)


def test_a_separable_problem_is_divided(two: Workers) -> None:
    alone, shared = Population(SMALL, seed=3), Population(SMALL, seed=3)
    alone.evolve(xor(), generations=3)
    shared.evolve(xor(), generations=3, executor=two)
    assert same(alone, shared)


@pytest.mark.thorough
def test_a_genome_whose_process_died_is_tried_again(two: Workers, tmp_path: Path) -> None:
    alone, shared = Population(SMALL, seed=3), Population(SMALL, seed=3)
    alone.evolve(noisy_xor, generations=2)
    shared.evolve(DiesOnce(tmp_path / "mark"), generations=2, executor=two)
    assert (tmp_path / "mark").exists()
    assert same(alone, shared)
    assert shared.progress.failures == ()


@pytest.mark.thorough
def test_every_kind_of_failure_is_contained_and_told() -> None:
    history, population = History(), Population(EvolutionConfig(population=48, failure_fitness=-9.0), seed=1)
    with Workers(2, timeout=1.0, retries=0) as workers:
        population.evolve(troubled, generations=1, executor=workers, reporters=[history])
    reasons = {event.reason.partition(" (")[0] for event in history.events if isinstance(event, EvaluationFailed)}
    assert reasons == {
        "no fitness after 1.0 s",
        "the process of the fitness function died",
        "ZeroDivisionError: no luck",
        "fitness is nan",
    }
    failed = [failure.genome for failure in population.progress.failures]
    assert (population.score[failed] == -9.0).all()
    assert population.score[np.setdiff1d(np.arange(48), failed)].min() > 0


@pytest.mark.thorough
def test_what_a_process_loads_at_its_first_genome_is_not_the_genomes_time() -> None:
    population = Population(EvolutionConfig(population=8), seed=1)
    with Workers(1, timeout=0.3) as workers:
        population.evolve(slow_at_first, generations=1, executor=workers)
    assert population.progress.failures == ()


def test_a_reason_says_where_an_exception_was_raised() -> None:
    history, population = History(), Population(EvolutionConfig(population=30), seed=1)
    population.evolve(raises_for_some, generations=1, reporters=[history])
    [reason] = {event.reason for event in history.events if isinstance(event, EvaluationFailed)}
    assert reason.startswith("KeyError: 'no luck' (test_workers.py, line ")


def test_what_cannot_be_sent_is_refused(two: Workers) -> None:
    with pytest.raises(EvaluationError, match="cannot be sent"):
        Population(SMALL, seed=1).evolve(lambda genome, rng: 1.0, generations=1, executor=two)


@pytest.mark.thorough
def test_a_problem_that_needs_all_genomes_stays_here(two: Workers) -> None:
    population = Population(SMALL, seed=1)
    population.evolve(batched(lambda cohort: np.arange(float(len(cohort)))), generations=1, executor=two)
    assert population.champion is not None
    assert population.champion.fitness == 23


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [{"count": -1}, {"timeout": 0.0}, {"retries": -1}])
def test_impossible_workers(arguments: dict) -> None:
    with pytest.raises(SpecError, match="workers need"):
        Workers(**arguments)
