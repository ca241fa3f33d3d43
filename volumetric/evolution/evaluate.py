"""Fitness of a generation: genome by genome here or on an executor, or all genomes at once."""

from __future__ import annotations

import inspect
import logging
import math
import os
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import DeviceError, ShapeError, SpecError, VolumetricError
from volumetric.base.hints import format_value
from volumetric.base.rng import generator
from volumetric.evolution.activate import GenomePlacement, outputs_on
from volumetric.evolution.pool import Pool

_log = logging.getLogger(__name__)
C = TypeVar("C")
FITNESS_STREAM = 1
_RETRIES = 2
"""Retries of a part of a generation after its worker was lost."""
Fitness: TypeAlias = Callable[[Any], float] | Callable[[Any, np.random.Generator], float]
"""A fitness function: from a genome, and optionally its random generator, to a number."""
Result: TypeAlias = tuple[Any, str]
"""Fitness, and the reason of a failure or an empty text."""
PartScorer: TypeAlias = Callable[["Cohort"], list[Result]]
"""Function that executors call with parts of a generation."""


class EvaluationError(VolumetricError, RuntimeError):
    """Fitness could not be computed: all genomes of a generation failed, or the configuration forbids failures."""


class Genomes(Protocol):
    """The genomes of a generation, of any kind."""

    def __len__(self) -> int: ...

    def genome(self, row: int) -> Any:
        """Return one genome."""
        ...

    def take(self, rows: NDArray[np.int64]) -> Genomes:
        """Return some of the genomes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """A generation to evaluate.

    Attributes
    ----------
    pool : its genomes, packed if possible
    generation : from 0
    first_id : id of the first genome; the others follow
    seed : seed of the run
    placement : device that activates genomes of nodes and connections together; None: one thread of the CPU
    """

    pool: Genomes
    generation: int
    first_id: int
    seed: int
    placement: GenomePlacement | None = None

    def __len__(self) -> int:
        return len(self.pool)

    def genome(self, row: int) -> Any:
        """Return one genome; genomes of nodes and connections are linked together at the first activation."""
        return self.pool.lend_genome(row) if isinstance(self.pool, Pool) else self.pool.genome(row)

    def rng(self, row: int) -> np.random.Generator:
        """Return the random stream of one genome, which depends only on seed, generation and id."""
        return generator(self.seed, FITNESS_STREAM, self.generation, self.first_id + row)

    def activate(self, inputs: Array) -> NDArray[np.float64]:
        """Return the outputs of all genomes [genomes, samples, outputs], on the device of the run; see `activate`.

        Raises
        ------
        SpecError : the genomes are not genomes of nodes and connections
        """
        if not isinstance(self.pool, Pool):
            raise SpecError("whole-network genomes cannot be activated together")
        if self.placement is None:
            return outputs_on(None, self.pool, inputs)
        return self.placement.outputs(self.pool, inputs)


@runtime_checkable
class Scorer(Protocol):
    """An executor that scores genomes one by one, as `volumetric.evolution.Workers`."""

    def score(self, function: PartScorer, cohort: Cohort) -> Sequence[Result]:
        """Return the result of `function` for each genome."""
        ...


@runtime_checkable
class Problem(Protocol):
    """A fitness function over all genomes at once.

    If the score of a genome does not depend on other genomes, the attribute ``separable = True`` lets executors score
    parts of a generation. If scoring several genomes raises, each is scored alone, so that one failure does not affect
    others.

    A method ``configure(config)`` may return the configuration with missing values filled in, as widths; `Run.evolve`
    calls it. It raises `SpecError` if problem and configuration contradict each other.
    """

    def score_all(self, cohort: Cohort) -> ArrayLike | Scores:
        """Return one number for each genome; NaN or infinity marks a failure. `Scores` can hold reasons."""
        ...


def configured(problem: object, config: C) -> C:
    """Return a configuration completed by the problem's method ``configure``, if it has one."""
    configure = getattr(problem, "configure", None)
    return config if configure is None else configure(config)


@dataclass(frozen=True, slots=True)
class batched:  # noqa: N801 - used as a decorator
    """Wrap a function of a `Cohort` as a `Problem`: ``population.evolve(batched(score))``."""

    function: Callable[[Cohort], ArrayLike | Scores]

    def score_all(self, cohort: Cohort) -> ArrayLike | Scores:
        """Return the function's result for a generation: one number for each genome, or `Scores`."""
        return self.function(cohort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A genome without fitness.

    Attributes
    ----------
    genome : its id
    reason : the exception, or the non-finite number
    """

    genome: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """Fitness of a generation.

    Attributes
    ----------
    fitness : float64 [genomes]; NaN for failures
    failures : one for each NaN
    """

    fitness: NDArray[np.float64]
    failures: tuple[Failure, ...] = ()


def evaluate(fitness: Fitness | Problem, cohort: Cohort, executor: Executor | Scorer | None = None) -> Scores:
    """Return the fitness of every genome; the result does not depend on the executor or its number of workers.

    Parameters
    ----------
    fitness : function of one genome, or a `Problem`. An exception is the failure of that genome, except in a `Problem`
        that is not ``separable``: it scores all genomes at once, so the exception is raised
    executor : runs a function of one genome, or a ``separable`` `Problem`; None runs it in this process. Processes
        need a function that can be pickled

    Raises
    ------
    EvaluationError : a worker died, or the function cannot be sent to it
    SpecError : `fitness` takes neither one nor two arguments
    ShapeError : a problem returned another number of values than there are genomes
    """
    if isinstance(fitness, Problem):
        if not getattr(fitness, "separable", False):
            return check_scores(fitness.score_all(cohort), cohort)
        if executor is None:
            return _score_together(fitness, cohort)
        function: PartScorer = partial(_score_problem, fitness)
    else:
        function = partial(_score, fitness, random=takes_random(fitness))
    return _scores(results_of(function, cohort, executor), cohort)


def results_of(function: PartScorer, cohort: Cohort, executor: Executor | Scorer | None) -> Sequence[Result]:
    """Return the result of `function` for each genome, here or on an executor.

    Raises
    ------
    EvaluationError : a worker died, or the function cannot be sent to it
    """
    if executor is None:
        return function(cohort)
    if isinstance(executor, Scorer):
        return executor.score(function, cohort)
    return [result for part in _score_parts(executor, function, cohort) for result in part]


def _scores(results: Sequence[Result], cohort: Cohort) -> Scores:
    failures = tuple(
        Failure(genome=cohort.first_id + row, reason=reason) for row, (_, reason) in enumerate(results) if reason
    )
    return Scores(fitness=np.array([value for value, _ in results]), failures=failures)


def check_scores(values: ArrayLike | Scores, cohort: Cohort) -> Scores:
    """Return `values` as scores; non-finite values are failures.

    Raises
    ------
    ShapeError : the number of values is not the number of genomes
    """
    reasons = {failure.genome: failure for failure in values.failures} if isinstance(values, Scores) else {}
    array = np.asarray(values.fitness if isinstance(values, Scores) else values, np.float64)
    if array.shape != (len(cohort),):
        raise ShapeError(f"fitness has shape {array.shape}, expected ({len(cohort)},): one number for each genome")
    finite = np.isfinite(array)
    if finite.all():
        return Scores(fitness=array)
    failed = [(cohort.first_id + row, float(array[row])) for row in np.flatnonzero(~finite).tolist()]
    failures = tuple(reasons.get(id, Failure(genome=id, reason=f"fitness is {value}")) for id, value in failed)
    return Scores(fitness=np.where(finite, array, np.nan), failures=failures)


def score_each(fitness: Fitness, cohort: Cohort) -> Scores:
    """Return the result of a function for every genome; an exception is the failure of that genome."""
    return _scores(_score(fitness, cohort, random=takes_random(fitness)), cohort)


def takes_random(function: Callable[..., Any]) -> bool:
    """Whether a function of a genome also takes a random generator, whose creation costs more than a small genome.

    Raises
    ------
    SpecError : it takes neither one nor two arguments, or has neat-python's arguments: all genomes and a configuration
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have no signature
        return True
    if [*signature.parameters][:2] in (["genomes", "config"], ["genomes", "cfg"], ["population", "config"]):
        name = getattr(function, "__name__", type(function).__name__)
        raise SpecError(
            f"{name}{signature} has neat-python's signature, which takes all genomes and sets their fitness",
            hint="pass a function of one genome that returns its fitness: def fitness(genome): return …; wrap a "
            "function of a whole generation with batched",
        )
    for arguments in ((None, None), (None,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return len(arguments) == 2
    name = getattr(function, "__name__", type(function).__name__)
    raise SpecError(
        f"{name}{signature} cannot be called with a genome",
        hint="write fitness(genome) or, with random numbers, fitness(genome, rng); wrap a function of a whole "
        "generation with batched",
    )


def _score(fitness: Callable[..., float], cohort: Cohort, *, random: bool) -> list[Result]:
    """Fitness and reason of failure ("" for none) of all genomes."""
    results: list[Result] = []
    for row in range(len(cohort)):
        try:
            genome = cohort.genome(row)
            value = _number(fitness(genome, cohort.rng(row)) if random else fitness(genome))
        except Exception as error:
            results.append((math.nan, reason_of(error)))
        else:
            results.append((value, "") if math.isfinite(value) else (math.nan, f"fitness is {value}"))
    return results


def _number(value: Any) -> float:
    """Return the result of a fitness function as a number.

    Raises
    ------
    SpecError : it is None, text, or several numbers
    """
    if value is None:
        raise SpecError("the fitness function returned None", hint="return a number: def fitness(genome): return …")
    if getattr(value, "ndim", 0):
        if value.size != 1:
            raise SpecError(
                f"the fitness function returned an array of shape {value.shape}", hint="return one number, as its sum"
            )
        return float(value.item())
    if isinstance(value, str | tuple | list | dict):
        raise SpecError(
            f"the fitness function returned {format_value(value)}",
            hint="return a number: def fitness(genome): return …",
        )
    return float(value)


def _score_problem(problem: Problem, cohort: Cohort) -> list[Result]:
    """Like `_score`, for a problem whose scores do not depend on other genomes."""
    scores = _score_together(problem, cohort)
    reasons = {failure.genome: failure.reason for failure in scores.failures}
    return [(value, reasons.get(cohort.first_id + row, "")) for row, value in enumerate(scores.fitness.tolist())]


def _score_together(problem: Problem, cohort: Cohort) -> Scores:
    """Score all genomes at once, or each alone if that raises; errors of a device are raised."""
    try:
        return check_scores(problem.score_all(cohort), cohort)
    except DeviceError:
        raise
    except Exception as error:
        if len(cohort) == 1:
            failure = Failure(genome=cohort.first_id, reason=reason_of(error))
            return Scores(fitness=np.array([math.nan]), failures=(failure,))
    parts = (part_of(cohort, row, row + 1) for row in range(len(cohort)))
    alone = [_score_together(problem, replace(part, placement=cohort.placement)) for part in parts]
    failures = tuple(failure for scores in alone for failure in scores.failures)
    return Scores(fitness=np.concatenate([scores.fitness for scores in alone]), failures=failures)


def reason_of(error: Exception) -> str:
    """Describe an exception and where it was raised or, if it is an error of this package, what to do about it."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, VolumetricError):
        return f"{reason}; {error.hint}" if error.hint else reason
    frames = traceback.extract_tb(error.__traceback__)
    return f"{reason} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else reason


def _score_parts(executor: Executor, function: PartScorer, cohort: Cohort) -> list[list[Result]]:
    """Results of `function` for the parts of `cohort`, in order.

    Work is sent in parts, because a task for each genome costs more than most fitness functions. A part whose worker
    was lost is sent again.
    """
    tasks = 4 * (os.cpu_count() or 1)
    size = max(1, -(-len(cohort) // tasks))
    parts = [part_of(cohort, start, min(start + size, len(cohort))) for start in range(0, len(cohort), size)]
    try:
        futures = [executor.submit(function, part) for part in parts]
        return [_result(executor, future, function, part) for future, part in zip(futures, parts, strict=True)]
    except EvaluationError:
        raise
    except Exception as error:
        raise EvaluationError(
            f"the executor failed: {type(error).__name__}: {error}",
            hint="define the fitness function at the top level of a module for worker processes",
        ) from error


def _result(executor: Executor, future: Future[list[Result]], function: PartScorer, part: Cohort) -> list[Result]:
    for _ in range(_RETRIES):
        try:
            return future.result()
        except Exception as error:
            _log.warning("genomes %d … are sent again: %s", part.first_id, error)
            future = executor.submit(function, part)
    return future.result()


def part_of(cohort: Cohort, start: int, stop: int) -> Cohort:
    """Return the genomes ``start : stop`` as a cohort with the same ids and random streams.

    It may be sent to another process, where one thread activates it.
    """
    part = cohort.pool.take(np.arange(start, stop))
    return Cohort(pool=part, generation=cohort.generation, first_id=cohort.first_id + start, seed=cohort.seed)
