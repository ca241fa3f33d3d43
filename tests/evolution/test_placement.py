"""Runs on a device: generations are activated there together, and what a device has no part in is refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.evolution.test_linked import wild
from volumetric.base.errors import DeviceError, ShapeError, UnsupportedError
from volumetric.builders import sequential
from volumetric.evolution import (
    Cohort,
    EvolutionConfig,
    GenomeConfig,
    GridConfig,
    GridPopulation,
    ParetoRun,
    Population,
    activate,
    batched,
    problems,
)
from volumetric.evolution import linked_pool as linked_module
from volumetric.evolution.nsga import SizedProblem
from volumetric.evolution.problems.sample_problem import SampleProblem
from volumetric.train import problems as learning

X = np.random.default_rng(3).normal(size=(9, 3))
RECURRENT = EvolutionConfig(population=20, genome=GenomeConfig(inputs=2, outputs=1, recurrent=True))


@pytest.mark.parametrize("name", ["gpu", "reference"])
def test_every_device_activates_as_the_cpu_does(name: str) -> None:
    pool = wild(False)
    expected = activate(pool, X, device="cpu")
    np.testing.assert_allclose(
        activate(pool, X, device=device(name)), expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max()
    )
    with pytest.raises(ShapeError, match="inputs have shape"):
        activate(pool, X[:, :2], device=device(name))


@pytest.mark.parametrize("several", [False, True])
def test_a_generation_on_a_gpu_has_the_fitness_of_the_cpu(several: bool) -> None:
    config, results = problems.xor().configure(EvolutionConfig(population=30)), []
    for name in ("cpu", "gpu"):
        population = Population(config, 4)
        if several:
            run = ParetoRun(population)
            run.evolve(SizedProblem(problems.xor()), 1, device=device(name))
            results.append(np.array(run.objectives))
        else:
            population.evolve(problems.xor(), 1, device=device(name))
            results.append(np.array(population.progress.fitness))
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_a_run_on_a_gpu_solves_its_problem() -> None:
    assert Population(EvolutionConfig(), seed=1).evolve(problems.xor(), 100, device=device("gpu")).fitness > 3.9


def test_generations_are_shared_among_threads_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_module, "_LEAST", 4)
    seen: set[int] = set()
    run = linked_module.LinkedPool._run

    def watched(*arguments: Any) -> None:
        seen.add(threading.get_ident())
        run(*arguments)

    monkeypatch.setattr(linked_module.LinkedPool, "_run", watched)
    alone, shared = (Population(EvolutionConfig(population=60), seed=2) for _ in range(2))
    shared.evolve(problems.xor(), 5, device=device("cpu"))
    assert len(seen) == 2
    with ThreadPoolExecutor(1) as executor:  # parts of a generation are activated by the thread that scores them
        alone.evolve(problems.xor(), 5, executor=executor)
    assert alone.progress.fitness is not None
    np.testing.assert_array_equal(alone.progress.fitness, shared.progress.fitness)


def of_sizes(cohort: Cohort) -> list[float]:
    return [float(cohort.genome(row).hidden) for row in range(len(cohort))]


@pytest.mark.parametrize("name", ["gpu", "reference"])
def test_what_a_device_has_no_part_in_is_refused(name: str) -> None:
    where = device(name)
    run = Population(EvolutionConfig(population=20), seed=1)
    with pytest.raises(UnsupportedError, match="function of one genome"):
        run.evolve(lambda genome: genome.hidden, 1, device=where)
    with ThreadPoolExecutor(1) as executor, pytest.raises(UnsupportedError, match="workers"):
        run.evolve(problems.xor(), 1, device=where, executor=executor)
    with pytest.raises(UnsupportedError, match="does not activate genomes together"):
        run.evolve(batched(of_sizes), 1, device=where)


def test_grids_are_refused() -> None:
    network = sequential(2, 1, hidden=(3,))
    run = GridPopulation(GridConfig(population=4), network, seed=1)
    with pytest.raises(UnsupportedError, match="whole-network genomes"):
        run.evolve(SampleProblem(learning=learning.xor()), 1, device=device("gpu"))


def test_recurrent_genomes_are_refused_where_a_gpu_is_named_and_computed_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnsupportedError, match="recurrent"):
        Population(RECURRENT, seed=1).evolve(problems.xor(), 1, device=device("gpu"))
    with pytest.raises(DeviceError, match="there is no device 'cuda'"):
        Population(RECURRENT, seed=1).evolve(problems.xor(), 1, device="cuda")
    monkeypatch.setenv("VOLUMETRIC_DEVICE", device("gpu").info.name)
    named, plain = (Population(RECURRENT, seed=1) for _ in range(2))
    named.evolve(problems.xor(), 2)
    monkeypatch.delenv("VOLUMETRIC_DEVICE")
    plain.evolve(problems.xor(), 2)
    assert named.progress.fitness is not None
    np.testing.assert_array_equal(named.progress.fitness, plain.progress.fitness)
