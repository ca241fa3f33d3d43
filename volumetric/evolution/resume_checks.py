"""Checks of a resumed job: which settings may change, and an error for all others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import SpecError
from volumetric.evolution.evaluate import configured
from volumetric.evolution.evolution_config import GenomeConfig

if TYPE_CHECKING:
    from volumetric.evolution.evolution_job import EvolutionJob
    from volumetric.evolution.generation_run import Run

FREE: Final = (
    "name", "home", "generations", "output", "device", "workers", "timeout", "checkpoint_every", "tensorboard",
    "genealogy",    "budget", "config", "names",
)  # fmt: skip
"""Fields of a job that may change: duration, device and output; `config` is compared separately."""
_FIXED: Final = ("population", "algorithm")


def facts_of(job: EvolutionJob) -> dict[str, Any]:
    """Return the fields of a job that must not change, as JSON data."""
    fields = {f.name: getattr(job, f.name) for f in dataclasses.fields(job) if f.name not in FREE}
    plain = {name: dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v for name, v in fields.items()}  # pyright: ignore[reportArgumentType]  (an instance)
    return json.loads(json.dumps(plain, default=str))


def check_facts(job: EvolutionJob, began: Mapping[str, Any]) -> None:
    """Raise `SpecError` if a job differs from `began`, the `facts_of` the run at its start."""
    now = facts_of(job)
    for name, was in began.items():
        if name in now and now[name] != was:
            _refuse(*next(_differences(name, was, now[name])))


def take_over(job: EvolutionJob, run: Run[Any, Any], problem: object) -> None:
    """Apply the configuration of `job` to a loaded run: probabilities, species, reproduction, goal and so on.

    Raises
    ------
    SpecError : it differs in the form or number of genomes
    """
    config: Any = configured(problem, job.config)
    if job.seed != run.seed:
        _refuse("seed", run.seed, job.seed)
    for name in _FIXED:
        if getattr(config, name, None) != getattr(run.config, name, None):
            _refuse(name, getattr(run.config, name), getattr(config, name))
    if hasattr(config, "genome"):
        _check_genome(job.config.genome, run.config.genome)  # pyright: ignore[reportAttributeAccessIssue]  (both have it)
        config = replace(config, genome=run.config.genome)
    run.config = config


def _check_genome(config: GenomeConfig, has: GenomeConfig) -> None:
    for field in dataclasses.fields(config):
        value, was = getattr(config, field.name), getattr(has, field.name)
        if value is not None and value != was:
            _refuse(f"genome.{field.name}", was, value)


def _differences(name: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the entries that differ, by dotted names, with both values."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in {**was, **now}:
            if was.get(key) != now.get(key):
                yield from _differences(f"{name}.{key}", was.get(key), now.get(key))
    else:
        yield name, was, now


def _refuse(name: str, was: Any, now: Any) -> None:
    raise SpecError(
        f"{name} is {now!r}, but the run began with {was!r}, and this value cannot change within a run",
        hint="restore the value, or start a run in another directory: evolve CONFIG --out DIRECTORY",
    )
