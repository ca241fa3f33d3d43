"""Events of a run, and reporters that store or write them; see `volumetric.base.reporting`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from volumetric.base.reporting import ConsoleReporter
from volumetric.evolution.genealogy import REQUESTS, BestGenome, Births
from volumetric.evolution.species import SpeciesTable
from volumetric.train.history import CsvReporter, JsonlReporter
from volumetric.train.tensorboard import TensorBoardReporter

if TYPE_CHECKING:
    from volumetric.evolution.generation_run import Run

__all__ = [
    "ConsoleReporter",
    "Csv",
    "Evaluated",
    "EvaluationFailed",
    "Event",
    "FrontEvaluated",
    "History",
    "JsonLines",
    "Solved",
    "SpeciesEnded",
    "SpeciesFounded",
    "TensorBoard",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A generation was evaluated.

    Attributes
    ----------
    generation : from 0
    best, mean, stdev, worst : fitness of the generation
    best_genome : id of its best genome
    best_hidden, best_connections : hidden nodes and enabled connections of that genome
    species : size of each species by id
    threshold : compatibility threshold
    failures : number of genomes that failed
    """

    event: ClassVar[str] = "Evaluated"
    detail: ClassVar[int] = 1

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

    def __str__(self) -> str:
        failed = f", {self.failures} failed" if self.failures else ""
        return (
            f"generation {self.generation}: best {self.best:.6g}, mean {self.mean:.6g}, {len(self.species)} species, "
            f"best has {self.best_hidden} hidden and {self.best_connections} links{failed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFailed:
    """The evaluation of a genome failed."""

    event: ClassVar[str] = "EvaluationFailed"
    detail: ClassVar[int] = 2

    generation: int
    genome: int
    reason: str

    def __str__(self) -> str:
        return f"generation {self.generation}: genome {self.genome} failed: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeciesFounded:
    """A genome founded a new species, because it was unlike all existing ones."""

    event: ClassVar[str] = "SpeciesFounded"
    detail: ClassVar[int] = 2

    generation: int
    species: int

    def __str__(self) -> str:
        return f"generation {self.generation}: species {self.species} begins"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeciesEnded:
    """A species ended: it stagnated, or its children belong to other species."""

    event: ClassVar[str] = "SpeciesEnded"
    detail: ClassVar[int] = 2

    generation: int
    species: int
    best: float
    age: int

    def __str__(self) -> str:
        return f"generation {self.generation}: species {self.species} ends at age {self.age}, best {self.best:.6g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A genome reached the fitness threshold."""

    event: ClassVar[str] = "Solved"
    detail: ClassVar[int] = 0

    generation: int
    genome: int
    fitness: float

    def __str__(self) -> str:
        return f"generation {self.generation}: genome {self.genome} solves the problem with fitness {self.fitness:.6g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEvaluated:
    """A generation of a run with several objectives was evaluated.

    Attributes
    ----------
    generation : from 0
    front : objectives of the non-dominated points, by the first objective
    genomes : ids of these points
    failures : number of genomes of the generation that failed
    """

    event: ClassVar[str] = "FrontEvaluated"
    detail: ClassVar[int] = 1

    generation: int
    front: tuple[tuple[float, ...], ...]
    genomes: tuple[int, ...]
    failures: int

    def __str__(self) -> str:
        best = ", ".join(f"{max(values):.6g}" for values in zip(*self.front, strict=True))
        failed = f", {self.failures} failed" if self.failures else ""
        return f"generation {self.generation}: {len(self.front)} points on the front, best {best}{failed}"


Event: TypeAlias = (
    FrontEvaluated | Evaluated | EvaluationFailed | SpeciesFounded | SpeciesEnded | Solved | Births | BestGenome
)


class History:
    """Stores all events in memory: ``history.events``, and ``history.generations`` for events of evaluations.

    Parameters
    ----------
    genealogy : also store who descends from whom and how the best genomes are built, see `evolution.genealogy`
    """

    def __init__(self, *, genealogy: bool = False) -> None:
        self.requests: tuple[str, ...] = REQUESTS if genealogy else ()
        self.events: list[Event] = []

    def start(self, step: int, epoch: int) -> None:
        """Drop the events that will be reported again."""
        self.events = [event for event in self.events if event.generation < epoch]

    def report(self, event: Event, /) -> None:
        """Store an event."""
        self.events.append(event)

    def close(self) -> None:
        """Nothing to close."""

    @property
    def generations(self) -> list[Evaluated]:
        """The events of evaluated generations, in order."""
        return [event for event in self.events if isinstance(event, Evaluated)]


class JsonLines(JsonlReporter):
    """Appends every event as one line of JSON, with its kind under ``event``.

    Parameters
    ----------
    path : the file. A new run overwrites it; a resumed run drops later events
    genealogy : also write who descends from whom and how the best genomes are built, see `evolution.genealogy`: about
        45 bytes for each genome of each generation
    """

    def __init__(self, path: str | os.PathLike[str], *, genealogy: bool = False) -> None:
        super().__init__(path)
        self.requests: tuple[str, ...] = REQUESTS if genealogy else ()

    def _is_before(self, fields: Mapping[str, Any], step: int, epoch: int) -> bool:
        return int(fields["generation"]) < epoch


class Csv(CsvReporter):
    """Appends one row for each evaluated generation; species are counted.

    Parameters
    ----------
    path : the file, with a header. A new run overwrites it; a resumed run drops later events
    """

    columns: ClassVar[Sequence[str]] = tuple(field.name for field in dataclasses.fields(Evaluated))

    def report(self, event: Event, /) -> None:
        """Write a row."""
        if isinstance(event, Evaluated):
            super().report(event)

    def _line(self, fields: Mapping[str, Any]) -> str:
        counted = {**fields, "species": len(fields["species"])}
        return super()._line({name: counted[name] for name in self.columns})

    def _is_before(self, fields: Mapping[str, Any], step: int, epoch: int) -> bool:
        return int(fields["generation"]) < epoch


def generation_events(run: Run[Any, Any], before: SpeciesTable) -> list[Event]:
    """Return the events of the last evaluated generation of `run`; `before` are the previous species."""
    generation, species, champion = run.generation, run.species, run.champion
    fitness = run.progress.fitness
    if fitness is None or champion is None:
        return []
    events = [*_species_events(run, before)]
    events += [
        EvaluationFailed(generation=generation, genome=failure.genome, reason=failure.reason)
        for failure in run.progress.failures
    ]
    best = int(run.score.argmax())
    hidden, connections = run.size_of(run.pool.genome(best))
    sizes = np.bincount(species.member, minlength=len(species))
    events.append(
        Evaluated(
            generation=generation,
            best=float(fitness[best]),
            mean=float(fitness.mean()),
            stdev=float(fitness.std()),
            worst=float(fitness[int(run.score.argmin())]),
            best_genome=generation * run.config.population + best,
            best_hidden=hidden,
            best_connections=connections,
            species=dict(zip(species.ids.tolist(), sizes.tolist(), strict=True)),
            threshold=species.threshold,
            failures=len(run.progress.failures),
        )
    )
    if run.solved:
        events.append(Solved(generation=generation, genome=champion.id, fitness=champion.fitness))
    return events


def _species_events(run: Run[Any, Any], before: SpeciesTable) -> list[Event]:
    generation, species = run.generation, run.species
    known = set(before.ids.tolist()) if generation else set()
    alive = set(species.ids.tolist())
    ended: list[Event] = [
        SpeciesEnded(generation=generation, species=number, best=run.sign * best, age=generation - founded)
        for number, best, founded in zip(
            before.ids.tolist(), before.best.tolist(), before.founded.tolist(), strict=True
        )
        if number not in alive
    ]
    return [
        *ended,
        *(SpeciesFounded(generation=generation, species=s) for s in species.ids.tolist() if s not in known),
    ]


class TensorBoard(TensorBoardReporter):
    """Writes fitness, species and sizes of every generation as scalars; needs no other library.

    Parameters
    ----------
    directory : log directory of TensorBoard (``tensorboard --logdir``); a resumed run adds a file
    """

    def report(self, event: Event, /) -> None:
        """Write the numbers of an event."""
        if isinstance(event, Evaluated | FrontEvaluated):
            self._scalars(event.generation, _numbers(event))


def _numbers(event: Evaluated | FrontEvaluated) -> dict[str, float]:
    if isinstance(event, FrontEvaluated):
        best = {f"front/best_{i}": max(values) for i, values in enumerate(zip(*event.front, strict=True))}
        return {"front/points": float(len(event.front)), "failures": float(event.failures), **best}
    return {
        "fitness/best": event.best,
        "fitness/mean": event.mean,
        "fitness/worst": event.worst,
        "species": float(len(event.species)),
        "best/hidden": float(event.best_hidden),
        "best/connections": float(event.best_connections),
        "failures": float(event.failures),
    }
