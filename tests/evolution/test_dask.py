"""A cluster gives the serial run, also when one of its workers is killed in the middle of a generation."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

from volumetric.evolution import EvolutionConfig, Genome, Population

SMALL = EvolutionConfig(population=16)
X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


def noisy_xor(genome: Genome, rng: np.random.Generator) -> float:
    return 4.0 - float(((genome.activate(X)[:, 0] - [0, 1, 1, 0]) ** 2).sum()) + 0.1 * rng.normal()


class Slow:
    """Tells which process is working, so that it can be killed meanwhile."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, genome: Genome, rng: np.random.Generator) -> float:
        (self.home / str(os.getpid())).touch()
        time.sleep(0.05)
        return noisy_xor(genome, rng)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    options: dict[str, Any] = {"dashboard_address": None, "processes": True}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        yield client


def same(first: Population, second: Population) -> bool:
    return first.genomes == second.genomes and np.array_equal(first.score, second.score)


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_nothing_is_lost_with_a_worker(client: Client, tmp_path: Path) -> None:
    alone, shared = Population(SMALL, seed=3), Population(SMALL, seed=3)
    alone.evolve(noisy_xor, generations=1)
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            working = [int(path.name) for path in tmp_path.iterdir()]
            if working:
                time.sleep(0.08)
                os.kill(working[0], signal.SIGKILL)
                killed.append(working[0])
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    executor: Any = client.get_executor()
    shared.evolve(Slow(tmp_path), generations=1, executor=executor)
    killer.join()
    assert killed
    assert len(list(tmp_path.iterdir())) >= 2
    assert same(alone, shared)
    assert shared.progress.failures == ()
