"""What evolution costs as populations grow, batched evaluation, and evaluation by several processes or a cluster.

    python -m benchmarks evolution_scale scale [--sizes 100,1000,10000]
    python -m benchmarks evolution_scale batch [--genomes 10000] [--device cpu|gpu]
    python -m benchmarks evolution_scale workers
    python -m benchmarks evolution_scale dask

`scale`: XOR; breeding (parents, crossover, mutation, speciation) and evaluation of a generation, and memory.
`batch`: outputs of a whole population with about 20 nodes each for several numbers of samples, in one call.
`workers`: parallel efficiency of two processes, and of a Dask cluster of two, for a fitness that sleeps.
`dask`: what an evaluation on a Dask cluster of this machine costs beyond the fitness function itself.
"""

from __future__ import annotations

import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser, numbers
from volumetric.evolution import EvolutionConfig, Genome, GenomeConfig, LinkedPool, MutationConfig, Population, Workers
from volumetric.evolution.pool import Pool
from volumetric.evolution.problems import Table, xor

SLEEP = 0.05
QUIET: dict[str, Any] = {"dashboard_address": None}
"""Options of a cluster without a web page."""


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}"


def rss() -> float:
    """MiB of this process at its peak so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def scale(sizes: list[int]) -> None:
    print(f"XOR, 30 generations, {machine()}; median of a generation\n")
    print("| genomes | breeding ms | evaluation ms | pool MiB | peak MiB | checkpoint MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    problem = xor()
    Population(EvolutionConfig(population=10), seed=0).evolve(problem, 3)
    for size in sizes:
        run = Population(EvolutionConfig(population=size), seed=1)
        bred, scored = [], []
        for _ in range(30):
            began = time.perf_counter()
            cohort = run.ask()
            bred.append(time.perf_counter() - began)
            began = time.perf_counter()
            run.tell(problem.score_all(cohort))
            scored.append(time.perf_counter() - began)
        pool = run.pool
        held = (pool.nodes.nbytes + pool.connections.nbytes + pool.sizes.nbytes) / 2**20
        path = Path(tempfile.gettempdir()) / f"evolution-scale-{os.getpid()}.npz"
        run.save(path)
        stored = path.stat().st_size / 2**20
        path.unlink()
        print(f"| {size} | {1e3 * median(bred[1:]):.2f} | {1e3 * median(scored):.2f} | {held:.2f} | {rss():.0f} | "
              f"{stored:.2f} |")  # fmt: skip


def grown(genomes: int) -> Pool:
    """A population that grew for a while, repeated to the size that is asked for."""
    mutation = MutationConfig(add_node=0.5, add_connection=0.7)
    shape = GenomeConfig(inputs=8, outputs=4, activation="tanh")
    run = Population(EvolutionConfig(population=200, genome=shape, mutation=mutation), seed=1)
    rng = np.random.default_rng(0)
    run.evolve(Table.of(rng.normal(size=(8, 8)), rng.normal(size=(8, 4)), goal=1e9), 40)
    return run.pool.take(np.arange(genomes) % 200)


def best_of(call: Callable[[], Any], least: float = 1.5) -> float:
    """Median seconds of a call."""
    call()
    taken: list[float] = []
    while sum(taken) < least or len(taken) < 3:
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return median(taken)


def batch(genomes: int, device: str) -> None:
    pool = grown(genomes)
    nodes, connections = pool.sizes.mean(axis=0)
    enabled = sum(int(pool.connections[g, : pool.sizes[g, 1]]["enabled"].sum()) for g in range(200)) / 200
    print(f"{genomes} genomes, {nodes:.1f} nodes, {connections:.1f} connections ({enabled:.1f} enabled) each")
    print(f"{machine()}\n")
    print("| device | samples | ms | evaluations/s | samples · genomes/s | G multiply-adds/s |")
    print("| --- | --- | --- | --- | --- | --- |")
    rng = np.random.default_rng(1)
    gpu = None
    if device == "gpu":
        from volumetric.devices.gpu import GpuDevice

        gpu = GpuDevice()
        names = {f"GPU ({gpu.info.name})": LinkedPool(pool).on_gpu(gpu)}
    else:
        processors = os.cpu_count() or 1
        counts = sorted({1, 2, processors // 2, processors} - {0})
        names = {f"CPU, {n} threads": LinkedPool(pool, threads=n) for n in counts if n <= processors}
    for name, program in names.items():
        for samples in (1, 16, 256):
            x = rng.normal(size=(samples, 8)).astype(np.float32)
            seconds = best_of(lambda program=program, x=x: program.activate(x))
            rate = genomes / seconds
            print(f"| {name} | {samples} | {1e3 * seconds:.2f} | {rate:,.0f} | {rate * samples:,.0f} | "
                  f"{rate * samples * enabled / 1e9:.2f} |")  # fmt: skip
    began = time.perf_counter()
    linked = LinkedPool(pool)
    print(f"\nlinking takes {1e3 * (time.perf_counter() - began):.1f} ms", end="")
    if gpu is not None:
        began = time.perf_counter()
        linked.on_gpu(gpu).activate(rng.normal(size=(1, 8)).astype(np.float32))
        print(f", flattening, uploading and one sample {1e3 * (time.perf_counter() - began):.1f} ms", end="")
    print()


def sleeps(genome: Genome, rng: np.random.Generator) -> float:
    time.sleep(SLEEP)
    return float(genome.activate(np.ones(2))[0])


def quick(genome: Genome, rng: np.random.Generator) -> float:
    return float(len(genome.connections))


def spent(fitness: Any, executor: Any, generations: int, size: int) -> float:
    run = Population(EvolutionConfig(population=size), seed=1)
    run.evolve(fitness, 1, executor=executor)  # processes start and import
    began = time.perf_counter()
    run.evolve(fitness, generations, executor=executor)
    return time.perf_counter() - began


def workers(seconds: float) -> None:
    from distributed import Client, LocalCluster

    size, generations = 64, 2
    ideal = size * generations * seconds
    serial = spent(sleeps, None, generations, size)
    print(f"a fitness of {1e3 * seconds:.0f} ms, {size} genomes, {generations} generations, {machine()}\n")
    print("| evaluation | s | efficiency: serial / (2 · s) | of sleeping alone |\n| --- | --- | --- | --- |")
    print(f"| serial | {serial:.2f} | | {ideal / serial:.3f} |")
    with Workers(2, timeout=60) as team:
        taken = spent(sleeps, team, generations, size)
    print(f"| 2 processes | {taken:.2f} | {serial / taken / 2:.3f} | {ideal / taken / 2:.3f} |")
    with LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster, Client(cluster) as client:
        taken = spent(sleeps, client.get_executor(), generations, size)
    print(f"| Dask, 2 workers | {taken:.2f} | {serial / taken / 2:.3f} | {ideal / taken / 2:.3f} |")


def dask() -> None:
    from distributed import Client, LocalCluster

    size, generations = 1000, 5
    with LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster, Client(cluster) as client:
        far = spent(quick, client.get_executor(), generations, size)
    with Workers(2) as team:
        beside = spent(quick, team, generations, size)
    here = spent(quick, None, generations, size)
    count = size * generations
    for name, taken in (("Dask", far), ("two processes", beside)):
        more = 1e6 * (taken - here) / count
        print(f"{name}: {more:.0f} µs an evaluation more than serial ({1e6 * here / count:.0f} µs)")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("scale", "batch", "workers", "dask"))
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--genomes", type=int, default=10_000)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    given = parser.parse_args()
    if given.what == "scale":
        scale(numbers(given.sizes))
    elif given.what == "batch":
        batch(given.genomes, given.device)
    elif given.what == "workers":
        workers(SLEEP)
    else:
        dask()


if __name__ == "__main__":
    main()
