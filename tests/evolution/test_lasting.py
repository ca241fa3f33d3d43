"""What outlives a process: budgets across interruptions, the hall of fame, archives, and runs that were killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.evolution import Budget, Cohort, EvolutionConfig, NoveltyConfig, Population, TensorBoard
from volumetric.evolution.problems import NoveltySearch, parity, xor

SMALL = EvolutionConfig(population=40, fitness_threshold=1e9)
X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])

KILLED = """
import sys, time
import numpy as np
from volumetric.evolution import EvolutionConfig, NoveltyConfig, Population
from volumetric.evolution.problems import NoveltySearch
from pathlib import Path

X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])

def behave(cohort):
    time.sleep(0.02)
    return cohort.activate(X)[:, :, 0]

path, generations = Path(sys.argv[1]), int(sys.argv[2])
problem = NoveltySearch(behave, NoveltyConfig(capacity=100), seed=4)
run = Population.load(path) if path.exists() else Population(EvolutionConfig(population=40), seed=7)
left = generations - run.generation - (run.progress.fitness is not None)
print("begins", flush=True)
if left > 0:
    run.evolve(problem, generations=left, checkpoint=path, checkpoint_every=1)
"""


def same(first: Population, second: Population) -> bool:
    return first.genomes == second.genomes and np.array_equal(first.score, second.score) and first.hall == second.hall


@pytest.mark.thorough
def test_a_run_that_is_killed_again_and_again_is_the_uninterrupted_one(tmp_path: Path) -> None:
    program, path, chance = tmp_path / "program.py", tmp_path / "run.npz", random.Random(3)
    program.write_text(KILLED)
    kills = 0
    for attempt in range(6):
        process = subprocess.Popen([sys.executable, str(program), str(path), "40"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"begins\n"
        if attempt < 5:
            time.sleep(chance.uniform(0.05, 0.5))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        process.stdout.close()
        if code == 0:
            break
        kills += code == -signal.SIGKILL
    assert kills >= 2
    whole = Population(EvolutionConfig(population=40), seed=7)
    problem = NoveltySearch(behave, NoveltyConfig(capacity=100), seed=4)
    whole.evolve(problem, generations=40, checkpoint=tmp_path / "whole.npz")
    resumed = Population.load(path)
    assert resumed.generation == 39
    assert same(whole, resumed)
    assert path.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def behave(cohort: Cohort) -> np.ndarray:
    return cohort.activate(X)[:, :, 0]


def test_novelty_search_spreads_and_its_archive_is_kept(tmp_path: Path) -> None:
    problems = [NoveltySearch(behave, seed=1) for _ in range(3)]
    whole, part = Population(SMALL, seed=2), Population(SMALL, seed=2)
    whole.evolve(problems[0], generations=10)
    part.evolve(problems[1], generations=6, checkpoint=tmp_path / "run.npz")
    resumed = Population.load(tmp_path / "run.npz")
    resumed.evolve(problems[2], generations=4)
    assert same(whole, resumed)
    assert len(problems[2].archive) == len(problems[0].archive) == 50
    spread = problems[0].archive.behaviours.std(axis=0).mean()
    assert spread > 0.25


def test_genomes_without_behaviour_fail() -> None:
    def half(cohort: Cohort) -> np.ndarray:
        return np.where(np.arange(len(cohort))[:, None] % 2, behave(cohort), np.nan)

    population = Population(SMALL, seed=2)
    population.evolve(NoveltySearch(half), generations=1)
    assert len(population.progress.failures) == 20
    with pytest.raises(CheckpointError, match="archive"):
        NoveltySearch(behave).restore({"other": np.zeros(3)})


def test_the_hall_of_fame_holds_the_best_different_genomes(tmp_path: Path) -> None:
    best: dict[int, float] = {}
    population = Population(SMALL, seed=1)
    for _ in range(12):
        cohort = population.ask()
        fitness = xor().score_all(cohort)
        population.tell(fitness)
        best |= {cohort.first_id + row: value for row, value in enumerate(fitness.tolist())}
    values = [member.fitness for member in population.hall]
    assert len(values) == 5
    assert values == sorted(values, reverse=True)
    assert population.champion is not None
    assert values[0] == population.champion.fitness == max(best.values())
    assert all(best[member.id] == member.fitness for member in population.hall)
    assert len({member.genome.to_json() for member in population.hall}) == 5
    distinct = sorted(set(best.values()), reverse=True)[:5]
    assert values[-1] >= distinct[-1]
    population.save(tmp_path / "run.npz")
    assert Population.load(tmp_path / "run.npz").hall == population.hall


def test_no_hall_of_fame() -> None:
    population = Population(EvolutionConfig(population=10, hall_of_fame=0), seed=1)
    population.evolve(xor(), generations=2)
    assert population.hall == ()


def test_a_budget_of_evaluations_counts_those_before_an_interruption(tmp_path: Path) -> None:
    population = Population(SMALL, seed=1)
    population.evolve(parity(2), generations=4, checkpoint=tmp_path / "run.npz")
    resumed = Population.load(tmp_path / "run.npz")
    resumed.evolve(parity(2), generations=100, budget=Budget(evaluations=290))
    assert (resumed.generation, resumed.ended) == (6, "evaluations")


def test_time_patience_and_requests_end_a_run() -> None:
    population = Population(SMALL, seed=1)
    population.evolve(parity(2), generations=10_000, budget=Budget(seconds=0.05))
    assert population.ended == "seconds"
    population.evolve(parity(2), generations=5, stop=lambda: True)
    assert population.ended == "stopped"
    population.evolve(parity(2), generations=10_000, budget=Budget(patience=8))
    assert population.ended == "patience"
    assert population.champion is not None
    assert population.generation >= population.champion.generation + 8
    population.evolve(parity(2), generations=2)
    assert population.ended == "generations"


@pytest.mark.parametrize("limit", [{"seconds": 0}, {"evaluations": -1}, {"patience": 0}])
def test_impossible_budgets(limit: dict) -> None:
    with pytest.raises(SpecError, match="above 0"):
        Budget(**limit)


def test_numbers_for_tensorboard(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "board")
    Population(SMALL, seed=1).evolve(xor(), generations=3, reporters=[board])
    board.close()
    (file,) = (tmp_path / "board").iterdir()
    content = file.read_bytes()
    assert content.count(b"fitness/best") == content.count(b"species") == 3
