"""Fitness of a generation: genome by genome here or on an executor, or all genomes at once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric._typing import Array
from volumetric.errors import ShapeError, SpecError, VolumetricError
from volumetric.evolution.activate import activate
from volumetric.evolution.pool import Pool
from volumetric.rng import generator

FITNESS_STREAM = 1
Fitness: TypeAlias = Callable[[Any, np.random.Generator], float]
"""A fitness function: a genome and random numbers of its own to a number."""


class EvaluationError(VolumetricError, RuntimeError):
    """Fitness could not be computed: no genome of a generation has one, or the configuration forbids failures."""


class Genomes(Protocol):
    """The genomes of a generation, in whatever form."""

    def __len__(self) -> int: ...

    def genome(self, row: int) -> Any:
        """Return one genome."""
        ...

    def take(self, rows: NDArray[np.int64]) -> Genomes:
        """Return some of the genomes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """A generation to be evaluated.

    Attributes
    ----------
    pool : its genomes, packed where they can be
    generation : from 0
    first_id : id of the first genome; the others follow
    seed : seed of the run
    """

    pool: Genomes
    generation: int
    first_id: int
    seed: int

    def __len__(self) -> int:
        return len(self.pool)

    def genome(self, row: int) -> Any:
        """Return one genome."""
        return self.pool.genome(row)

    def rng(self, row: int) -> np.random.Generator:
        """Return the random stream of one genome, which depends on seed, generation and id alone."""
        return generator(self.seed, FITNESS_STREAM, self.generation, self.first_id + row)

    def activate(self, inputs: Array) -> NDArray[np.float64]:
        """Return the outputs of all genomes [genomes, samples, outputs]; see `activate`.

        Raises
        ------
        SpecError : the genomes are not made of nodes and connections
        """
        if not isinstance(self.pool, Pool):
            raise SpecError("these genomes are whole networks, which are not activated together")
        return activate(self.pool, inputs)


@runtime_checkable
class Problem(Protocol):
    """A fitness function over all genomes at once."""

    def score_all(self, cohort: Cohort) -> ArrayLike:
        """Return one number for each genome; NaN or infinity marks a failure."""
        ...


@dataclass(frozen=True, slots=True)
class batched:  # noqa: N801 - used as a decorator
    """Make a function of a `Cohort` a `Problem`: ``population.evolve(batched(score))``."""

    function: Callable[[Cohort], ArrayLike]

    def score_all(self, cohort: Cohort) -> ArrayLike:
        return self.function(cohort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A genome without fitness.

    Attributes
    ----------
    genome : its id
    reason : the exception, or the number that is not finite
    """

    genome: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """Fitness of a generation.

    Attributes
    ----------
    fitness : float64 [genomes]; NaN where it failed
    failures : one for each NaN
    """

    fitness: NDArray[np.float64]
    failures: tuple[Failure, ...] = ()


def evaluate(fitness: Fitness | Problem, cohort: Cohort, executor: Executor | None = None) -> Scores:
    """Return the fitness of every genome; the result does not depend on the executor or its number of workers.

    Parameters
    ----------
    fitness : function of one genome, or a `Problem`. An exception it raises is that genome's failure; a `Problem`
        scores all genomes at once, so its exceptions are not contained
    executor : where a function of one genome runs; None runs it here. Processes need a function that can be pickled

    Raises
    ------
    EvaluationError : a worker died, or the function cannot be sent to it
    ShapeError : a problem returned another number of values than there are genomes
    """
    if isinstance(fitness, Problem):
        return checked(fitness.score_all(cohort), cohort)
    rows = range(len(cohort))
    if executor is None:
        results = _score(fitness, cohort, rows)
    else:
        results = _score_on(executor, fitness, cohort)
    values = np.array([value for value, _ in results])
    failures = tuple(
        Failure(genome=cohort.first_id + row, reason=reason)
        for row, (_, reason) in zip(rows, results, strict=True)
        if reason
    )
    return Scores(fitness=values, failures=failures)


def checked(values: ArrayLike, cohort: Cohort) -> Scores:
    """Return `values` as scores; those that are not finite are failures.

    Raises
    ------
    ShapeError : there is not one value for each genome
    """
    array = np.asarray(values, np.float64)
    if array.shape != (len(cohort),):
        raise ShapeError(f"fitness has shape {array.shape}, expected ({len(cohort)},): one number for each genome")
    finite = np.isfinite(array)
    if finite.all():
        return Scores(fitness=array)
    rows = np.flatnonzero(~finite).tolist()
    failures = tuple(Failure(genome=cohort.first_id + row, reason=f"fitness is {array[row]}") for row in rows)
    return Scores(fitness=np.where(finite, array, np.nan), failures=failures)


def _score(fitness: Fitness, cohort: Cohort, rows: Sequence[int]) -> list[tuple[float, str]]:
    """Fitness and reason of failure ("" for none) of some genomes."""
    return [_score_one(fitness, cohort.genome(row), cohort.rng(row)) for row in rows]


def _score_one(fitness: Fitness, genome: Any, rng: np.random.Generator) -> tuple[float, str]:
    try:
        value = float(fitness(genome, rng))
    except Exception as error:
        return math.nan, f"{type(error).__name__}: {error}"
    return (value, "") if math.isfinite(value) else (math.nan, f"fitness is {value}")


def _score_on(executor: Executor, fitness: Fitness, cohort: Cohort) -> list[tuple[float, str]]:
    """As `_score` for all rows, in chunks: a task for each genome costs more than most fitness functions."""
    tasks = 4 * (os.cpu_count() or 1)
    size = max(1, -(-len(cohort) // tasks))
    chunks = [range(start, min(start + size, len(cohort))) for start in range(0, len(cohort), size)]
    try:
        futures = [executor.submit(_score_chunk, fitness, _part(cohort, rows)) for rows in chunks]
        return [result for future in futures for result in future.result()]
    except Exception as error:
        raise EvaluationError(
            f"the executor failed: {type(error).__name__}: {error}",
            hint="worker processes need a fitness function at the top level of a module",
        ) from error


def _part(cohort: Cohort, rows: range) -> Cohort:
    part = cohort.pool.take(np.arange(rows.start, rows.stop))
    return Cohort(pool=part, generation=cohort.generation, first_id=cohort.first_id + rows.start, seed=cohort.seed)


def _score_chunk(fitness: Fitness, cohort: Cohort) -> list[tuple[float, str]]:
    return _score(fitness, cohort, range(len(cohort)))
