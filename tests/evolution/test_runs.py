"""Whole runs: solved, repeatable, resumable, and robust against the fitness function."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.evolution import (
    Cohort,
    Csv,
    EvaluationError,
    EvolutionConfig,
    Genome,
    GenomeConfig,
    History,
    JsonLines,
    Population,
    batched,
)
from volumetric.evolution.problems import function, parity, xor
from volumetric.evolution.reporters import Evaluated, EvaluationFailed, Solved, SpeciesFounded

SMALL = EvolutionConfig(population=40)
X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


def noisy_xor(genome: Genome, rng: np.random.Generator) -> float:
    """Fitness whose noise would show if streams depended on who evaluates."""
    return 4.0 - float(((genome.activate(X)[:, 0] - [0, 1, 1, 0]) ** 2).sum()) + 0.1 * rng.normal()


def same(first: Population, second: Population) -> bool:
    one, other = first.progress.fitness, second.progress.fitness
    assert one is not None
    assert other is not None
    return first.genomes == second.genomes and np.array_equal(one, other) and first.champion == second.champion


@pytest.mark.parametrize("seed", range(5))
def test_xor_is_solved(seed: int) -> None:
    problem = xor()
    population = Population(problem.configure(EvolutionConfig()), seed=seed)
    best = population.evolve(problem, generations=150)
    assert population.solved
    np.testing.assert_array_equal(best.genome.activate(X)[:, 0].round(), [0, 1, 1, 0])
    assert best.genome.hidden > 0


def test_a_function_is_fitted() -> None:
    problem = function(np.square)
    config = problem.configure(EvolutionConfig(genome=GenomeConfig(activation="tanh")))
    assert (
        Population(config, seed=1).evolve(problem, generations=100).fitness > 200 * problem.goal
    )  # 80 % of the variance


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    runs = [Population(SMALL, seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        run.evolve(parity(2), generations=15)
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


def test_a_run_without_a_seed_tells_it() -> None:
    first = Population(SMALL)
    first.evolve(xor(), generations=3)
    second = Population(SMALL, seed=first.seed)
    second.evolve(xor(), generations=3)
    assert same(first, second)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_give_the_same_run(workers: int) -> None:
    alone, shared = Population(SMALL, seed=3), Population(SMALL, seed=3)
    alone.evolve(noisy_xor, generations=6)
    with ThreadPoolExecutor(workers) as executor:
        shared.evolve(noisy_xor, generations=6, executor=executor)
    assert same(alone, shared)


@pytest.mark.thorough
def test_processes_give_the_same_run() -> None:
    alone, shared = Population(SMALL, seed=3), Population(SMALL, seed=3)
    alone.evolve(noisy_xor, generations=2)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        shared.evolve(noisy_xor, generations=2, executor=executor)
    assert same(alone, shared)


def test_all_at_once_is_as_one_by_one() -> None:
    def score(cohort: Cohort) -> list[float]:
        return [noisy_xor(cohort.genome(row), cohort.rng(row)) for row in range(len(cohort))]

    alone, together = Population(SMALL, seed=3), Population(SMALL, seed=3)
    alone.evolve(noisy_xor, generations=5)
    together.evolve(batched(score), generations=5)
    assert same(alone, together)


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_resumed_run_is_the_uninterrupted_one(at: int, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    whole, part = Population(SMALL, seed=5), Population(SMALL, seed=5)
    whole.evolve(noisy_xor, generations=14)
    part.evolve(noisy_xor, generations=at, checkpoint=path)
    resumed = Population.load(path)
    assert same(part, resumed)
    resumed.evolve(noisy_xor, generations=14 - at)
    assert same(whole, resumed)
    assert (whole.species.ids == resumed.species.ids).all()
    assert (whole.innovations.counters[:2] == resumed.innovations.counters[:2]).all()


def test_a_checkpoint_before_an_evaluation_resumes_too(tmp_path: Path) -> None:
    whole = Population(SMALL, seed=5)
    whole.evolve(xor(), generations=3)
    whole.ask()
    whole.save(tmp_path / "run.npz")
    resumed = Population.load(tmp_path / "run.npz")
    for run in (whole, resumed):
        run.evolve(xor(), generations=3)
    assert same(whole, resumed)


def test_the_same_run_writes_the_same_checkpoint(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Population(SMALL, seed=5).evolve(xor(), generations=8, checkpoint=tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def _without(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in arrays.items() if key != name}


DAMAGE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "no nodes": lambda arrays: _without(arrays, "nodes"),
    "no text": lambda arrays: _without(arrays, "plain"),
    "sizes": lambda arrays: arrays | {"sizes": arrays["sizes"] + 1},
    "negative sizes": lambda arrays: arrays | {"sizes": -arrays["sizes"]},
    "member": lambda arrays: arrays | {"species_member": arrays["species_member"] + 100},
    "fitness": lambda arrays: arrays | {"fitness": arrays["fitness"][:3]},
    "text": lambda arrays: arrays | {"plain": np.frombuffer(b'{"format": 1}', np.uint8)},
    "list": lambda arrays: arrays | {"plain": np.frombuffer(b"[]", np.uint8)},
    "plain nodes": lambda arrays: arrays | {"nodes": np.zeros(3)},
    "counters": lambda arrays: arrays | {"counters": np.zeros(2, np.int64)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoints(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    Population(SMALL, seed=5).evolve(xor(), generations=3, checkpoint=path)
    with np.load(path) as file:
        arrays = DAMAGE[damage](dict(file))
    np.savez(path, allow_pickle=False, **arrays)
    with pytest.raises(CheckpointError):
        Population.load(path)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read"):
        Population.load(tmp_path / "none")
    for text in (b"", b"PK\x03\x04rubbish", b"\x93NUMPY", b"x" * 100):
        (tmp_path / "bad").write_bytes(text)
        with pytest.raises(CheckpointError):
            Population.load(tmp_path / "bad")


def failing(genome: Genome, rng: np.random.Generator) -> float:
    if rng.random() < 0.3:
        raise ZeroDivisionError("no luck")
    return float("nan") if rng.random() < 0.2 else noisy_xor(genome, rng)


def test_failing_genomes_get_the_worst_fitness_and_are_reported() -> None:
    history = History()
    population = Population(SMALL, seed=1)
    population.evolve(failing, generations=4, reporters=[history])
    assert population.progress.fitness is not None
    failed = [event for event in history.events if isinstance(event, EvaluationFailed)]
    assert {event.reason.partition(" (")[0] for event in failed} == {"ZeroDivisionError: no luck", "fitness is nan"}
    last = [event.genome - 3 * 40 for event in failed if event.generation == 3]
    assert (population.progress.fitness[last] == population.progress.fitness.min()).all()
    assert [event.failures for event in history.generations][-1] == len(last)


def test_failures_may_have_a_fixed_fitness_or_end_the_run() -> None:
    population = Population(EvolutionConfig(population=40, failure_fitness=-7.0), seed=1)
    population.evolve(failing, generations=1)
    assert population.progress.fitness is not None
    assert population.progress.fitness.min() == -7.0
    with pytest.raises(EvaluationError, match=r"of 40 genomes .* failed; genome \d+: "):
        Population(EvolutionConfig(population=40, on_failure="raise"), seed=1).evolve(failing, generations=1)


def test_a_generation_of_failures_ends_the_run() -> None:
    with pytest.raises(EvaluationError, match="40 of 40"):
        Population(SMALL, seed=1).evolve(batched(lambda cohort: np.full(len(cohort), np.inf)), generations=1)


class BrokenExecutor(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise RuntimeError("no workers")


def test_a_broken_executor_is_not_the_genomes_fault() -> None:
    with pytest.raises(EvaluationError, match="no workers"):
        Population(SMALL, seed=1).evolve(noisy_xor, generations=1, executor=BrokenExecutor())


def test_ask_and_tell_keep_their_order() -> None:
    population = Population(SMALL, seed=1)
    cohort = population.ask()
    assert population.ask().generation == cohort.generation == 0
    with pytest.raises(ShapeError, match="fitness has shape"):
        population.tell([1.0, 2.0])
    population.tell(np.arange(40.0))
    with pytest.raises(SpecError, match="already"):
        population.tell(np.arange(40.0))
    assert population.champion is not None
    assert population.champion.id == 39
    assert population.ask().generation == 1


@pytest.mark.parametrize(("generations", "every"), [(0, 1), (3, 0)])
def test_impossible_lengths(generations: int, every: int) -> None:
    with pytest.raises(SpecError):
        Population(SMALL, seed=1).evolve(xor(), generations, checkpoint_every=every)


def test_reporters_write_what_happened(tmp_path: Path) -> None:
    problem, history = xor(), History()
    population = Population(problem.configure(EvolutionConfig()), seed=0)
    files = JsonLines(tmp_path / "run.jsonl"), Csv(tmp_path / "run.csv")
    best = population.evolve(problem, generations=150, reporters=[history, *files])
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [type(event).__name__ for event in history.events]
    assert isinstance(history.events[0], SpeciesFounded)
    assert history.events[-1] == Solved(generation=population.generation, genome=best.id, fitness=best.fitness)
    rows = (tmp_path / "run.csv").read_text().splitlines()
    assert len(rows) == 1 + len(history.generations) == 2 + population.generation
    last = history.generations[-1]
    assert (last.best, last.generation, sum(last.species.values())) == (best.fitness, population.generation, 150)
    assert isinstance(last, Evaluated)


def test_the_number_of_species_is_steered_to_the_target() -> None:
    counts = []
    for target in (4, 16):
        config = EvolutionConfig.from_dict({"species": {"target": target, "refocus_after": 0}})
        history = History()
        Population(config, seed=1).evolve(parity(2), generations=60, reporters=[history])
        counts.append(np.mean([len(event.species) for event in history.generations[20:]]))
    assert 2 < counts[0] < 8 < counts[1] < 24


def test_the_threshold_stays_without_a_target() -> None:
    config = EvolutionConfig.from_dict({"species": {"target": 0}})
    population = Population(config, seed=1)
    population.evolve(parity(2), generations=10)
    assert population.species.threshold == config.species.threshold


def test_what_an_interrupted_run_tells_again_is_told_once(tmp_path: Path) -> None:
    """Also before the first checkpoint, and where the file says more than the checkpoint knows."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for home in (whole, broken):
        home.mkdir()

    def files(home: Path) -> list[Any]:
        return [JsonLines(home / "run.jsonl"), Csv(home / "run.csv")]

    Population(SMALL, seed=1).evolve(xor(), 6, reporters=files(whole))
    Population(SMALL, seed=1).evolve(xor(), 2, reporters=files(broken))  # killed without a checkpoint
    population, history = Population(SMALL, seed=1), History()
    population.evolve(xor(), 2, reporters=[*files(broken), history], checkpoint=broken / "run.npz")
    population.evolve(xor(), 2, reporters=[*files(broken), history])  # killed after a later generation
    with (broken / "run.jsonl").open("a") as file:
        file.write('{"event": "Evalu')
    population = Population.load(broken / "run.npz")
    population.evolve(xor(), 4, reporters=[*files(broken), history])
    assert [event.generation for event in history.generations] == list(range(6))
    for name in ("run.jsonl", "run.csv"):
        assert (broken / name).read_text() == (whole / name).read_text()


def test_a_fitness_function_takes_random_numbers_only_if_it_wants_them() -> None:
    def plain(genome: Genome) -> float:
        return float(genome.activate([0.0, 1.0])[0])

    def random(genome: Genome, rng: np.random.Generator) -> float:
        return plain(genome) + 0.0 * rng.normal()

    class Scaled:
        def __call__(self, genome: Genome, *, scale: float = 1.0) -> float:
            return scale * plain(genome)

    runs = [Population(SMALL, seed=1) for _ in range(4)]
    forms = [plain, random, Scaled(), lambda genome, rng=None: plain(genome) if rng is not None else 0.0]
    best = [run.evolve(form, 3) for run, form in zip(runs, forms, strict=True)]
    assert len({champion.fitness for champion in best}) == 1
    for wrong in (lambda: 1.0, lambda genome, rng, more: 1.0):
        with pytest.raises(SpecError, match="cannot be called with a genome") as caught:
            Population(SMALL, seed=1).evolve(wrong, 3)  # pyright: ignore[reportArgumentType]
        assert "batched" in str(caught.value.hint)
