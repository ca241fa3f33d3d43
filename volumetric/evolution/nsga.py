"""Multi-objective evolution: NSGA-II over populations of any kind of genome.

Deb, Pratap, Agarwal & Meyarivan 2002: tournaments of two choose parents; of parents and children together the best by
front, then by crowding distance, survive. There are no species.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.base.rng import generator
from volumetric.evolution.evaluate import (
    Cohort,
    EvaluationError,
    Failure,
    Problem,
    Result,
    Scorer,
    Scores,
    configured,
    reason_of,
    results_of,
    takes_random,
)
from volumetric.evolution.genealogy import GenealogyEvents, Parentage
from volumetric.evolution.generation_run import Run
from volumetric.evolution.genome import Genome
from volumetric.evolution.loop import BudgetMeter, Loop
from volumetric.evolution.reporters import EvaluationFailed, Event, FrontEvaluated
from volumetric.evolution.species import Offspring

_BLOCK = 1 << 22
"""Comparisons made at a time, to limit memory for large populations."""


def objectives_of(values: ArrayLike) -> NDArray[np.float64]:
    """Return `values` as float64 ``[points, objectives]``.

    Raises
    ------
    ShapeError
        The array is not a table with at least one objective.
    SpecError
        A value is NaN or infinite.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or table.shape[1] < 1:
        raise ShapeError(f"objectives must be a table [points, objectives], got shape {table.shape}")
    if not np.isfinite(table).all():
        row = int(np.argwhere(~np.isfinite(table))[0, 0])
        raise SpecError(f"point {row} has objectives {table[row].tolist()}", hint="objectives must be finite")
    return table


def front_ranks(objectives: ArrayLike) -> NDArray[np.int64]:
    """Return the front of each point: 0 if no point dominates it, 1 if only points of front 0 do, and so on.

    A point dominates another if it is at least as good in every objective and better in one. Equal points share a
    front. The cost is O(points² · objectives) comparisons and O(points²) bits.
    """
    table = objectives_of(objectives)
    points = len(table)
    dominates = np.zeros((points, points), np.bool_)
    step = max(1, _BLOCK // max(1, points * table.shape[1]))
    for start in range(0, points, step):
        mine = table[start : start + step, None, :]
        dominates[start : start + step] = (mine >= table).all(-1) & (mine > table).any(-1)
    ranks = np.full(points, -1, np.int64)
    above = dominates.sum(axis=0)
    rank = 0
    while (free := (above == 0) & (ranks < 0)).any():
        ranks[free] = rank
        above = above - dominates[free].sum(axis=0)
        rank += 1
    return ranks


def crowding(objectives: ArrayLike, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the crowding distance of each point within its front: the sum of the gaps between its neighbours.

    The gaps of an objective are in units of the front's extent. The ends of a front have infinite distance.
    """
    table = objectives_of(objectives)
    room = np.zeros(len(table))
    for rank in np.unique(ranks):
        members = np.flatnonzero(ranks == rank)
        for values in table[members].T:
            order = np.argsort(values, kind="stable")
            sorted_values = values[order]
            extent = sorted_values[-1] - sorted_values[0]
            room[members[order[[0, -1]]]] = np.inf
            if extent > 0:
                room[members[order[1:-1]]] += (sorted_values[2:] - sorted_values[:-2]) / extent
    return room


def preference(objectives: ArrayLike) -> NDArray[np.int64]:
    """Return the points in order of preference: by front, then crowding distance, then index."""
    table = objectives_of(objectives)
    ranks = front_ranks(table)
    return np.lexsort((np.arange(len(table)), -crowding(table, ranks), ranks))


_STREAM = 3
OBJECTIVES, _IDS = "pareto_objectives", "pareto_ids"
Objectives: TypeAlias = Callable[[Any], Sequence[float]] | Callable[[Any, np.random.Generator], Sequence[float]]
"""From a genome, and optionally its random generator, to several numbers; higher is better."""
F64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A non-dominated genome: no other is at least as good in every objective and better in one.

    Attributes
    ----------
    genome, objectives : the genome and its objectives
    id : id of the genome
    """

    genome: Any
    objectives: tuple[float, ...]
    id: int


class ParetoRun(Loop["Objectives | Problem", tuple[Point, ...]]):
    """A run that maximises several objectives.

    Parameters
    ----------
    population : defines the genomes and their breeding; a fresh population, or one loaded from a checkpoint of a
        `ParetoRun`, which is then resumed. The run takes ownership of it

    Raises
    ------
    SpecError : the population has been evaluated for one objective, or breeds only elites
    CheckpointError : the objectives in the checkpoint are damaged

    Examples
    --------
    >>> from volumetric.evolution import EvolutionConfig, ParetoRun, Population
    >>> run = ParetoRun(Population(EvolutionConfig(population=20), seed=1))
    >>> front = run.evolve(lambda genome, rng: (genome.activate([0.0, 1.0])[0], -genome.hidden), generations=3)
    >>> len(front) >= 1
    True
    """

    def __init__(self, population: Run[Any, Any]) -> None:
        if population.progress.fitness is not None or getattr(population.config, "algorithm", "neat") == "elites":
            raise SpecError(
                "a run with several objectives needs a fresh population that breeds by crossover",
                hint='use algorithm "neat", and call evolve only on the ParetoRun',
            )
        self.population = population
        self.objectives: F64Array | None = None
        self.failures: tuple[Failure, ...] = ()
        size = population.config.population
        self.ids: NDArray[np.int64] = np.arange(size)
        self._generation = population.generation
        self._children: Any = None
        self._front: tuple[Point, ...] | None = None
        self._genealogy = GenealogyEvents()
        self._born: tuple[Any, F64Array] | None = None
        if OBJECTIVES in population.extras:
            self.objectives, self.ids = population.extras[OBJECTIVES], population.extras[_IDS]
            if self.objectives.ndim != 2 or len(self.objectives) != size or self.ids.shape != (size,):
                raise CheckpointError("the objectives of the checkpoint do not fit its population")

    @property
    def generation(self) -> int:
        """Number of the generation last returned by `ask`, from 0."""
        return self._generation

    @property
    def front(self) -> tuple[Point, ...]:
        """Non-dominated points, by the first objective; of equal points the earliest."""
        if self._front is None:
            self._front = () if self.objectives is None else self._front_of(self.objectives)
        return self._front

    def _front_of(self, objectives: F64Array) -> tuple[Point, ...]:
        rows = np.flatnonzero(front_ranks(objectives) == 0)
        best: dict[tuple[float, ...], int] = {}
        for row in rows[np.argsort(self.ids[rows])].tolist():
            best.setdefault(tuple(objectives[row].tolist()), row)
        return tuple(
            Point(genome=self.population.pool.genome(row), objectives=values, id=int(self.ids[row]))
            for values, row in sorted(best.items())
        )

    def ask(self) -> Cohort:
        """Return the genomes to evaluate: generation 0, then children of the survivors."""
        population = self.population
        if self.objectives is None:
            return self._cohort(population.pool)
        if self._children is None:
            generation = self._generation + 1
            rng = generator(population.seed, _STREAM, generation)
            key = rng.integers(0, 1 << 64, dtype=np.uint64)
            first_id = generation * population.config.population
            offspring = self._parents(self.objectives, rng)
            self._genealogy.parentage = Parentage.of(offspring, self.ids)
            self._children = population.children_of(offspring, first_id, key)
            self._generation = generation
        return self._cohort(self._children)

    def tell(self, objectives: ArrayLike, failures: tuple[Failure, ...] = ()) -> None:
        """Set the objectives of every genome of the last `ask`, and select the survivors.

        Parameters
        ----------
        objectives : [genomes, objectives]; a row with NaN or infinity is a failure and gets the worst of the generation

        Raises
        ------
        ShapeError : the number of rows is not the number of genomes, or the number of objectives changed
        EvaluationError : all genomes failed, or one did and ``on_failure`` is "raise"
        SpecError : `ask` was not called before
        """
        population, size = self.population, self.population.config.population
        if self.objectives is not None and self._children is None:
            raise SpecError(f"generation {self.generation} already has objectives", hint="call ask() first")
        values = np.array(objectives, np.float64)
        width = values.shape[-1] if self.objectives is None else self.objectives.shape[1]
        if values.ndim != 2 or values.shape != (size, width) or width == 0:
            raise ShapeError(f"objectives have shape {values.shape}, expected ({size}, {width or 'objectives'})")
        self.failures, self._front = failures, None
        values = self._without_failures(values)
        ids = self.generation * size + np.arange(size)
        self._born = (population.pool if self._children is None else self._children), values[:, 0].copy()
        if self.objectives is None:
            self.objectives, self.ids = values, ids
            return
        both = np.concatenate([self.objectives, values])
        survivors = np.sort(preference(both)[:size])
        population.continue_with(population.pool.concatenate(self._children).take(survivors), self._generation)
        self.objectives, self.ids = both[survivors], np.concatenate([self.ids, ids])[survivors]
        self._children = None

    @property
    def evaluated(self) -> int:
        """Generations that have been evaluated."""
        return 0 if self.objectives is None else self.generation + (self._children is None)

    def _evaluate(self, fitness: Objectives | Problem, cohort: Cohort, executor: Executor | Scorer | None) -> None:
        self.tell(*_evaluate_cohort(fitness, cohort, executor))

    def _spent(self, meter: BudgetMeter) -> str:
        size = self.population.config.population
        return meter.spent(self.generation, size, max(point.id for point in self.front) // size)

    def _result(self) -> tuple[Point, ...]:
        return self.front

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the survivors and objectives atomically; to resume, load the population and create a run from it.

        Raises
        ------
        SpecError : no generation has objectives yet, or the generation of the last `ask` has none
        """
        if self.objectives is None or self._children is not None:
            raise SpecError("save a run with several objectives between tell() and ask()")
        self.population.extras = {OBJECTIVES: self.objectives, _IDS: self.ids}
        self.population.save(path)

    def _cohort(self, pool: Any) -> Cohort:
        first_id = self.generation * self.population.config.population
        return Cohort(pool=pool, generation=self.generation, first_id=first_id, seed=self.population.seed)

    def _parents(self, objectives: F64Array, rng: np.random.Generator) -> Offspring:
        """Return pairs of tournament winners; the better of a pair comes first."""
        ranks = front_ranks(objectives)
        room = crowding(objectives, ranks)
        place = np.empty(len(ranks), np.int64)
        place[np.lexsort((-room, ranks))] = np.arange(len(ranks))
        size, rules = self.population.config.population, self.population.config.reproduction
        winners = rng.integers(0, len(ranks), (2, size, 2))
        first, second = (pair[np.arange(size), place[pair].argmin(axis=1)] for pair in winners)
        better = np.where(place[first] <= place[second], first, second)
        other = np.where(place[first] <= place[second], second, first)
        alone = (rng.random(size) >= rules.crossover) | (better == other)
        tie = ~alone & (ranks[better] == ranks[other])
        parents = np.stack([better, np.where(alone, -1, other), tie], axis=1).astype(np.int64)
        return Offspring(parents=parents, mutates=np.ones(size, np.uint8))

    def _without_failures(self, values: F64Array) -> F64Array:
        failed = np.asarray(~np.isfinite(values).all(axis=1))
        if not failed.any():
            return values
        if not self.failures:
            first_id = self.generation * len(values)
            self.failures = tuple(
                Failure(genome=first_id + row, reason=f"objectives are {values[row].tolist()}")
                for row in np.flatnonzero(failed).tolist()
            )
        if failed.all() or self.population.config.on_failure == "raise":
            first = self.failures[0]
            raise EvaluationError(
                f"{int(failed.sum())} of {len(values)} genomes of generation {self.generation} failed; genome "
                f"{first.genome}: {first.reason}",
                hint="return finite numbers from the function",
            )
        fallback = self.population.config.failure_fitness
        worst = values[~failed].min(axis=0) if fallback is None else fallback
        return np.where(failed[:, None], worst, values)

    def events(self, requests: Set[str] = frozenset()) -> Sequence[Event]:
        front = self.front
        if not front:
            return ()
        failed = [EvaluationFailed(generation=self.generation, genome=f.genome, reason=f.reason) for f in self.failures]
        evaluated = FrontEvaluated(
            generation=self.generation,
            front=tuple(point.objectives for point in front),
            genomes=tuple(point.id for point in front),
            failures=len(self.failures),
        )
        return [*self._genealogy_events(requests), *failed, evaluated]

    def _genealogy_events(self, requests: Set[str]) -> Sequence[Event]:
        if self._born is None or not requests:
            return ()
        pool, fitness = self._born
        best = self.front[-1]  # points are in the order of the first objective
        none, sizes = np.full(len(fitness), -1, np.int64), lambda: self.population.sizes_of(pool)
        return self._genealogy.of_generation(
            requests, self.generation, fitness, none, sizes, lambda: (best.genome, best.id, best.objectives[0])
        )


def _evaluate_cohort(
    fitness: Objectives | Problem, cohort: Cohort, executor: Executor | Scorer | None
) -> tuple[ArrayLike, tuple[Failure, ...]]:
    """Return objectives [genomes, objectives], NaN for failures, and the failures."""
    if isinstance(fitness, Problem):
        values = fitness.score_all(cohort)
        return (values.fitness, values.failures) if isinstance(values, Scores) else (values, ())
    results = results_of(partial(_score, fitness, random=takes_random(fitness)), cohort, executor)
    lengths = {len(values) for values, reason in results if not reason}
    if len(lengths) != 1:
        reasons = next((reason for _, reason in results if reason), "")
        what = f"returned {sorted(lengths)} objectives" if lengths else f"failed for every genome: {reasons}"
        raise EvaluationError(f"the function {what}", hint="return the same number of finite values for every genome")
    nothing = (math.nan,) * lengths.pop()
    failures = tuple(
        Failure(genome=cohort.first_id + row, reason=reason) for row, (_, reason) in enumerate(results) if reason
    )
    return np.array([nothing if reason else values for values, reason in results]), failures


def _score(fitness: Callable[..., Sequence[float]], cohort: Cohort, *, random: bool) -> list[Result]:
    return [_score_one(fitness, cohort, row, random=random) for row in range(len(cohort))]


def _score_one(fitness: Callable[..., Sequence[float]], cohort: Cohort, row: int, *, random: bool) -> Result:
    try:
        arguments = (cohort.genome(row), cohort.rng(row)) if random else (cohort.genome(row),)
        values = tuple(float(value) for value in fitness(*arguments))
    except Exception as error:
        return (), reason_of(error)
    fine = values and all(math.isfinite(value) for value in values)
    return (values, "") if fine else ((), f"objectives are {list(values)}")


@dataclass(frozen=True, slots=True)
class SizedProblem:
    """Objectives of `ParetoRun`: the fitness of a problem, and minus the size of the genome.

    The size is the number of enabled connections, or of weights of a grid.
    """

    problem: Problem

    def configure(self, config: Any) -> Any:
        """Return `config` completed by the problem."""
        return configured(self.problem, config)

    def score_all(self, cohort: Cohort) -> NDArray[np.float64]:
        """Return [genomes, 2]; NaN marks failures."""
        scores = self.problem.score_all(cohort)
        fitness = scores.fitness if isinstance(scores, Scores) else np.asarray(scores, np.float64)
        sizes = [_size(cohort.genome(row)) for row in range(len(cohort))]
        return np.stack([fitness, -np.array(sizes, np.float64)], axis=1)


def _size(genome: Any) -> int:
    if isinstance(genome, Genome):
        return int(genome.connections["enabled"].sum())
    return sum(int(np.prod(store.shape)) for store in genome.params.values())
