"""A run with several objectives from its directory: evolved on, and its front kept as files."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from volumetric.atomic import write_atomic
from volumetric.cli import console
from volumetric.evolution.genome import Genome
from volumetric.evolution.job import Job
from volumetric.evolution.nsga import ParetoRun, Point
from volumetric.evolution.reporters import ConsoleReporter, JsonLines, TensorBoard
from volumetric.evolution.workers import Workers
from volumetric.loaders.native import save_native

FRONT = "front"


def evolve_front(
    job: Job, run: ParetoRun, problem: Any, stop: Any, *, history: Path, checkpoint: Path
) -> dict[str, Any]:
    """Evolve until the end, or until Ctrl-C, and keep the front; return what to tell."""
    home, done = job.directory, run.evaluated
    reporters: list[Any] = [JsonLines(history)]
    reporters += [ConsoleReporter(seconds=1.0)] if console.notes_shown() else []
    reporters += [TensorBoard(home / "tensorboard")] if job.tensorboard else []
    if job.generations > done:
        with Workers(job.workers, timeout=job.timeout or None) if job.workers else nullcontext(None) as executor:
            run.evolve(
                problem,
                job.generations - done,
                device=job.device,
                executor=executor,
                reporters=reporters,
                checkpoint=checkpoint,
                checkpoint_every=job.checkpoint_every,
                budget=job.budget,
                stop=stop,
            )
    keep_front(home / FRONT, run.front)
    return {
        "reason": run.ended or "generations",
        "generations": run.generation + 1,
        "seed": run.population.seed,
        "front": [list(point.objectives) for point in run.front],
        "directory": str(home),
    }


def keep_front(home: Path, front: tuple[Point, ...]) -> None:
    """Write every genome of a front under its id, grids as models, and ``front.json`` with their objectives."""
    home.mkdir(exist_ok=True)
    wanted = {str(point.id) for point in front}
    for old in home.glob("*.json"):  # of an earlier end of the run; models are named by front.json alone
        if old.stem.isdigit() and old.stem not in wanted:
            old.unlink()
    for point in front:
        if isinstance(point.genome, Genome):
            point.genome.save(home / f"{point.id}.json")
        else:
            save_native(home / str(point.id), point.genome.network, point.genome.params)
    table = [{"genome": point.id, "objectives": list(point.objectives)} for point in front]
    write_atomic(home / "front.json", (json.dumps(table, indent=1) + "\n").encode())
