"""What a network is for: names, samples, or an environment, from the files of a run of evolution."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base.errors import SpecError, VolumetricError

_CONFIG: Final = "config.toml"
_MOST_SAMPLES: Final = 400
CARTPOLE: Final = "CartPole-v1"
ACTIONS: Final = ("left", "right")
"""Where CartPole's cart can be pushed."""
_CARTPOLE_INPUTS: Final = ("position", "speed", "angle", "angular speed")


@dataclass(frozen=True, kw_only=True)
class EvolvedTask:
    """The problem of a run of evolution, or of whoever exports a network.

    Attributes
    ----------
    problem : its name: a kind of problem, or what its fitness function is called
    environment : name of a Gymnasium environment, or ``""``
    inputs, outputs : names; may be empty
    samples : rows of inputs with their target or class, at most 400
    """

    problem: str = ""
    environment: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    samples: tuple[tuple[tuple[float, ...], float], ...] = ()


def task_beside(source: str | os.PathLike[str]) -> EvolvedTask | None:
    """Return the task of a run's champion: of a run's directory, or of a file or model in it; None: not of a run."""
    path = Path(source)
    for folder in (path, path.parent):
        if (folder / _CONFIG).is_file() and (folder / "origin.json").is_file():
            return _read_task(folder / _CONFIG)
    return None


def in_environment(task: EvolvedTask | None, environment: str) -> EvolvedTask:
    """Return a task with the environment in which the network acts.

    Raises
    ------
    SpecError : no page has it
    """
    if environment != CARTPOLE:
        raise SpecError(f"no page has the environment {environment!r}", hint=f"pages have {CARTPOLE}")
    task = task or EvolvedTask()
    return replace(task, environment=environment, inputs=task.inputs or _CARTPOLE_INPUTS)


def champion_of(source: str | os.PathLike[str]) -> Path:
    """Return the file of the champion of a run's directory; any other source as it is."""
    path = Path(source)
    champion = path / "champion.json"
    return champion if (path / _CONFIG).is_file() and champion.is_file() else path


def _read_task(config: Path) -> EvolvedTask | None:
    from volumetric.evolution.evolution_job import open_problem, read_job

    try:
        job = read_job(config)
        problem: Any = job.problem
        kind = problem.get("kind", "") if isinstance(problem, dict) else problem
        inputs, outputs = tuple(job.names.inputs), tuple(job.names.outputs)
        if kind != "gym":
            goal = str(job.fitness or kind)
            return EvolvedTask(problem=goal, inputs=inputs, outputs=outputs, samples=_samples(open_problem(job)))
        environment = str(problem.get("id", ""))
        if environment == CARTPOLE:
            inputs = inputs or _CARTPOLE_INPUTS
        return EvolvedTask(problem=environment, environment=environment, inputs=inputs, outputs=outputs)
    except (VolumetricError, OSError):
        return None  # the page only lacks names and samples


def _samples(problem: Any) -> tuple[tuple[tuple[float, ...], float], ...]:
    learning = getattr(problem, "learning", problem)
    x, y = getattr(learning, "inputs", None), getattr(learning, "targets", None)
    if x is None or y is None or np.ndim(x) != 2:
        return ()
    targets = np.asarray(y, np.float64).reshape(len(y), -1)
    if targets.shape[1] != 1:
        return ()
    rows = zip(np.asarray(x, np.float64)[:_MOST_SAMPLES].round(6).tolist(), targets[:, 0].tolist(), strict=False)
    return tuple((tuple(row), value) for row, value in rows)
