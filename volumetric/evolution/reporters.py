"""What happened in a run, as events, and reporters that keep or write them."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from volumetric.atomic import write_atomic
from volumetric.errors import VolumetricError


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A generation has its fitness.

    Attributes
    ----------
    generation : from 0
    best, mean, stdev, worst : fitness of the generation
    best_genome : id of its best genome
    best_hidden, best_connections : hidden nodes and enabled connections of that genome
    species : size of each species by id
    threshold : compatibility threshold
    failures : genomes without a fitness of their own
    """

    generation: int
    best: float
    mean: float
    stdev: float
    worst: float
    best_genome: int
    best_hidden: int
    best_connections: int
    species: dict[int, int]
    threshold: float
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFailed:
    """A genome has no fitness of its own."""

    generation: int
    genome: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeciesFounded:
    """A genome was unlike all species there were."""

    generation: int
    species: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeciesEnded:
    """A species left no members: it stagnated, or its children belong to other species."""

    generation: int
    species: int
    best: float
    age: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A genome reached the fitness threshold."""

    generation: int
    genome: int
    fitness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEvaluated:
    """A generation of a run with several objectives has been scored.

    Attributes
    ----------
    generation : from 0
    front : objectives of the points that nothing beats, by the first objective
    genomes : ids of these points
    failures : genomes of the generation without objectives of their own
    """

    generation: int
    front: tuple[tuple[float, ...], ...]
    genomes: tuple[int, ...]
    failures: int


Event: TypeAlias = FrontEvaluated | Evaluated | EvaluationFailed | SpeciesFounded | SpeciesEnded | Solved
Reporter: TypeAlias = Callable[[Event], None]
"""Anything that can be called with an event."""


class History:
    """Keeps all events in memory: ``history.events``, and ``history.generations`` for those of evaluations."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def generations(self) -> list[Evaluated]:
        return [event for event in self.events if isinstance(event, Evaluated)]


class JsonLines:
    """Appends every event to a file as one line of JSON, with its kind under ``event``.

    Parameters
    ----------
    path : the file; it is created if it is missing
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __call__(self, event: Event) -> None:
        line = json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)})
        _append(self._path, line + "\n")


class Csv:
    """Appends one row for each evaluated generation; species are counted.

    Parameters
    ----------
    path : the file; a new one gets a header
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Evaluated):
            return
        row = dataclasses.asdict(event) | {"species": len(event.species)}
        rows = _Rows()
        writer = csv.DictWriter(rows, list(row), lineterminator="\n")
        if not self._path.exists():
            writer.writeheader()
        writer.writerow(row)
        _append(self._path, "".join(rows.texts))


def trim_history(path: Path, generation: int) -> None:
    """Drop what a `JsonLines` or `Csv` file tells of generations after `generation`, which a resumed run repeats."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = []
    for line in lines:
        try:
            number = json.loads(line)["generation"] if line.startswith("{") else int(line.partition(",")[0])
        except (ValueError, KeyError):
            number = -1 if line.startswith("generation,") else generation + 1  # a line that a crash cut off
        if number <= generation:
            kept.append(line)
    write_atomic(path, "".join(kept).encode())


class _Rows:
    """The file that `csv` writes to, so that a row reaches the disk whole."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", newline="") as handle:
            handle.write(text)
    except OSError as error:
        raise VolumetricError(f"cannot write {path}: {error.strerror or error}") from error
