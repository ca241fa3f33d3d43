"""Does evolution of programs improve a score? Memory capacity of ``examples/echo.toml``, with and without structure.

``python -m benchmarks evolution_programs --seeds 3`` evolves the example from several seeds: with all mutations, and
with changes of weights alone, for the same number of generations. It prints the best fitness of the first and the last
generation, median and range over the seeds, and what the best program is made of.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from volumetric.evolution.evolution_job import open_problem, open_run, read_job
from volumetric.evolution.grids.grid_config import PROGRAM_CHANCES
from volumetric.evolution.grids.grid_genome import GridGenome
from volumetric.program.layer.program_layer import Program

EXAMPLE = Path(__file__).parent.parent / "examples" / "echo.toml"


def evolved(seed: int, generations: int, *, structure: bool) -> tuple[float, float, GridGenome]:
    """Return the best fitness of the first generation and of the whole run, and the champion."""
    changes: dict[str, Any] = {"seed": seed}
    if not structure:
        changes |= {f"mutation.{name}": 0.0 for name in PROGRAM_CHANCES}
    job = read_job(EXAMPLE, changes)
    problem = open_problem(job)
    run = open_run(job, problem)
    first = run.evolve(problem, 1).fitness
    best = run.evolve(problem, generations)
    assert isinstance(best.genome, GridGenome)
    return first, best.fitness, best.genome


def main() -> None:
    """Evolve, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--generations", type=int, default=15)
    given = parser.parse_args()
    for structure in (True, False):
        began = time.process_time()
        runs = [evolved(seed, given.generations, structure=structure) for seed in range(1, given.seeds + 1)]
        spent = (time.process_time() - began) / given.seeds
        what = "all mutations" if structure else "weights alone"
        told = {"first generation": [run[0] for run in runs], f"after {given.generations}": [run[1] for run in runs]}
        for name, values in told.items():
            values.sort()
            print(f"{what}, {name}: {statistics.median(values):.3f} ({values[0]:.3f} … {values[-1]:.3f})")
        best = max(runs, key=lambda run: run[1])[2]
        [spec] = best.network.layers.values()
        assert isinstance(spec, Program)
        regions, edges = len(spec.program.canvas.regions), len(spec.program.edges)
        lags = sorted(edge.lag for edge in spec.program.edges if edge.lag)
        print(f"  the best: {regions} regions, {edges} edges, lags {lags}; {spent:.0f} s of processor time a run")


if __name__ == "__main__":
    main()
