"""An evolution run for any kind of genome: ask for a generation, tell its fitness, repeat."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base.errors import SpecError
from volumetric.base.rng import fresh_seed, generator
from volumetric.evolution.evaluate import (
    Cohort,
    EvaluationError,
    Failure,
    Fitness,
    Genomes,
    Problem,
    Scorer,
    Scores,
    check_scores,
    configured,
    evaluate,
)
from volumetric.evolution.evolution_config import RunConfig
from volumetric.evolution.genealogy import GenealogyEvents, Parentage
from volumetric.evolution.loop import BudgetMeter, Loop
from volumetric.evolution.reporters import Event, generation_events
from volumetric.evolution.species import Offspring, Ranking, SpeciesTable, breeders, keep, plan, rank, remember

BREEDING_STREAM = 0
C = TypeVar("C", bound=RunConfig)
P = TypeVar("P", bound=Genomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """One of the best genomes.

    Attributes
    ----------
    genome, fitness : the genome and its fitness
    id, generation : id of the genome and its generation
    """

    genome: Any
    fitness: float
    id: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a run.

    Attributes
    ----------
    generation : number of the current generation, from 0
    improved : generation of the last improvement of the best score, or of the last refocus
    fitness : float64 [genomes] of the current generation, None before its evaluation
    failures : failed genomes of the current generation
    """

    generation: int = 0
    improved: int = 0
    fitness: NDArray[np.float64] | None = None
    failures: tuple[Failure, ...] = ()


class Run(Loop[Fitness | Problem, Champion], Generic[C, P]):
    """Base of all runs. Subclasses define the first genomes, breeding and the distance of genomes.

    Parameters
    ----------
    config : configuration of the run
    seed : of all random numbers; None chooses one, see the attribute `seed`

    Attributes
    ----------
    champion : the best genome so far
    hall : the best distinct genomes, ``config.hall_of_fame`` at most, best first
    extras : arrays of the problem in checkpoints, see `evolve`
    """

    def __init__(self, config: C, seed: int | None = None) -> None:
        if seed is not None and seed < 0:
            raise SpecError(f"seed must be 0 or more, got {seed}")
        self._ranking: Ranking | None = None
        self._fresh: NDArray[np.bool_] | None = None
        self._genealogy = GenealogyEvents()
        self.seed: int = fresh_seed() if seed is None else seed
        self.champion: Champion | None = None
        self.hall: tuple[Champion, ...] = ()
        self.extras: dict[str, NDArray[Any]] = {}
        self.progress: Progress = Progress()
        self._begin(config)

    def __repr__(self) -> str:
        best = "" if self.champion is None else f", best fitness {self.champion.fitness:.6g}"
        return f"<{type(self).__name__} of {len(self.pool)} genomes, generation {self.generation}{best}>"

    def _begin(self, config: C) -> None:
        """Create generation 0 from `config`."""
        self.config: C = config
        self.pool: P = self._first(generator(self.seed, BREEDING_STREAM))
        none = SpeciesTable.none(config.species.threshold)
        self.species: SpeciesTable
        self.species = self._before = self._speciate(self.pool, none, np.empty(0, np.int64), 0)

    @abstractmethod
    def _first(self, rng: np.random.Generator) -> P:
        """Return the genomes of generation 0, and initialise the innovation numbers."""

    @abstractmethod
    def children_of(self, offspring: Offspring, first_id: int, key: np.uint64) -> P:
        """Return one child of ``self.pool`` for each row of `offspring`; `first_id` and `key` select random streams."""

    @abstractmethod
    def _speciate(
        self, pool: P, table: SpeciesTable, representatives: NDArray[np.int64], generation: int
    ) -> SpeciesTable:
        """Return the species of `pool`; `representatives` are rows of ``self.pool``, one for each in `table`."""

    @abstractmethod
    def size_of(self, genome: Any) -> tuple[int, int]:
        """Return the numbers of additional nodes and of active connections of a genome, for reports."""

    @property
    def _keeps_clones(self) -> bool:
        """Whether unmutated children in `Offspring` are identical to their parents."""
        return True

    @property
    def generation(self) -> int:
        """Number of the current generation, from 0."""
        return self.progress.generation

    @property
    def genomes(self) -> list[Any]:
        """All genomes of the current generation."""
        return [self.pool.genome(row) for row in range(len(self.pool))]

    @property
    def score(self) -> NDArray[np.float64]:
        """Fitness of the current generation, signed so that higher is better; `SpecError` before its evaluation."""
        if self.progress.fitness is None:
            raise SpecError(f"generation {self.generation} has no fitness yet", hint="call tell() first")
        return self.sign * self.progress.fitness

    @property
    def solved(self) -> bool:
        """Whether the best genome so far reaches the fitness threshold."""
        goal = self.config.fitness_threshold
        return self.champion is not None and goal is not None and self.sign * (self.champion.fitness - goal) >= 0

    def ask(self) -> Cohort:
        """Return the generation to evaluate; breed a new one if the last one has fitness."""
        self._before = self.species
        if self.progress.fitness is not None:
            self._breed(self.progress.fitness)
        return self._cohort()

    def tell(self, fitness: ArrayLike | Scores) -> None:
        """Set the fitness of every genome of the last `ask`.

        Parameters
        ----------
        fitness : one number for each genome, in order; NaN and infinity mark failures

        Raises
        ------
        EvaluationError : all genomes failed, or one did and ``on_failure`` is "raise"
        ShapeError : the number of values is not the number of genomes
        SpecError : this generation already has fitness
        """
        if self.progress.fitness is not None:
            raise SpecError(f"generation {self.generation} already has fitness", hint="call ask() first")
        scores = fitness if isinstance(fitness, Scores) else check_scores(fitness, self._cohort())
        values = self._without_failures(scores)
        score = self.sign * values
        best = int(score.argmax())
        improved = self.progress.improved
        if self.champion is None or score[best] > self.sign * self.champion.fitness:
            improved = self.generation
            self.champion = self._as_champion(best, values)
        # Clones were candidates before; comparing genomes costs more than most of a generation.
        fresh = score if self._fresh is None else np.where(self._fresh, score, -np.inf)
        self.hall = update_hall(
            self.hall, fresh, self.config.hall_of_fame, self.sign, lambda row: self._as_champion(row, values)
        )
        self._ranking = rank(self.species, score)
        self.species = remember(self.species, self._ranking, self.generation)
        self.progress = replace(self.progress, fitness=values, improved=improved, failures=scores.failures)

    @property
    def evaluated(self) -> int:
        """Generations that have been evaluated."""
        return self.generation + (self.progress.fitness is not None)

    def continue_with(self, pool: P, generation: int) -> None:
        """Replace the current genomes by `pool` as `generation`, without fitness."""
        self.pool, self.progress = pool, Progress(generation=generation)
        self._ranking = self._fresh = self._genealogy.parentage = None

    def _prepare(self, fitness: Fitness | Problem) -> None:
        self._adopt(fitness)
        restore = getattr(fitness, "restore", None)
        if restore is not None and self.extras:
            restore(self.extras)
            self.extras = {}

    def _evaluate(self, fitness: Fitness | Problem, cohort: Cohort, executor: Executor | Scorer | None) -> None:
        self.tell(evaluate(fitness, cohort, executor))
        self._confirm(fitness)

    def events(self, requests: Set[str] = frozenset()) -> Sequence[Event]:
        return [*self._genealogy_events(requests), *generation_events(self, self._before)]

    def _genealogy_events(self, requests: Set[str]) -> Sequence[Event]:
        fitness = self.progress.fitness
        if fitness is None or not requests:
            return ()

        def best() -> tuple[Any, int, float]:
            champion = self._as_champion(int(self.score.argmax()), fitness)
            return champion.genome, champion.id, champion.fitness

        species = self.species.ids[self.species.member]
        return self._genealogy.of_generation(
            requests, self.generation, fitness, species, lambda: self.sizes_of(self.pool), best
        )

    def sizes_of(self, pool: P) -> NDArray[np.int64]:
        """Return `size_of` of each genome of a pool, int64 [genomes, 2]."""
        return np.array([self.size_of(pool.genome(row)) for row in range(len(pool))], np.int64)

    def _before_saving(self, fitness: Fitness | Problem) -> None:
        self.extras = getattr(fitness, "state", dict)()

    def _result(self) -> Champion:
        if self.champion is None:
            raise EvaluationError("no generation was evaluated yet")
        return self.champion

    def _adopt(self, fitness: Fitness | Problem) -> None:
        """Let a problem complete the configuration."""
        config = configured(fitness, self.config)
        if config == self.config:
            return
        if self.generation == 0 and self.progress.fitness is None:
            self._begin(config)
            return
        self._check_fit(config)
        self.config = config

    def _check_fit(self, config: C) -> None:
        """Raise `SpecError` if existing genomes do not fit `config`."""

    def _spent(self, meter: BudgetMeter) -> str:
        if self.solved:
            return "solved"
        champion = self.generation if self.champion is None else self.champion.generation
        return meter.spent(self.generation, self.config.population, champion)

    def _as_champion(self, row: int, fitness: NDArray[np.float64]) -> Champion:
        first_id = self.generation * self.config.population
        return Champion(
            genome=self.pool.genome(row), fitness=float(fitness[row]), id=first_id + row, generation=self.generation
        )

    def _confirm(self, fitness: Fitness | Problem) -> None:
        """Re-evaluate the champion of a stochastic problem, before a lucky genome ends the run."""
        confirm = getattr(fitness, "confirm", None)
        if confirm is None or not self.solved or self.champion is None or self.champion.generation < self.generation:
            return
        self.champion = replace(self.champion, fitness=float(confirm(self.champion.genome)))

    @property
    def sign(self) -> float:
        """Factor on fitness so that higher is better."""
        return 1.0 if self.config.fitness_criterion == "max" else -1.0

    def _cohort(self) -> Cohort:
        first_id = self.generation * self.config.population
        return Cohort(pool=self.pool, generation=self.generation, first_id=first_id, seed=self.seed)

    def _without_failures(self, scores: Scores) -> NDArray[np.float64]:
        """Return fitness with replaced values for failed genomes, according to the configuration."""
        if not scores.failures:
            return scores.fitness
        reason, _, advice = scores.failures[0].reason.partition("; ")
        if not advice:
            advice = "correct the function at that line" if reason.endswith(")") else "return a finite number"
        first = f"genome {scores.failures[0].genome}: {reason}"
        if self.config.on_failure == "raise" or len(scores.failures) == len(self.pool):
            raise EvaluationError(
                f"{len(scores.failures)} of {len(self.pool)} genomes of generation {self.generation} failed; {first}",
                hint=f"{advice}; calling the function with one genome shows the whole error",
            )
        value = self.config.failure_fitness
        if value is None:
            value = np.nanmin(scores.fitness) if self.config.fitness_criterion == "max" else np.nanmax(scores.fitness)
        return np.where(np.isnan(scores.fitness), value, scores.fitness)

    def _breed(self, fitness: NDArray[np.float64]) -> None:
        """Replace the generation with its children."""
        config, generation = self.config, self.generation
        rng = generator(self.seed, BREEDING_STREAM, generation + 1)
        parent_key, gene_key = rng.integers(0, 1 << 64, 2, np.uint64)
        score = self.sign * fitness
        ranking = self._ranking or rank(self.species, score)
        patience = config.species.refocus_after
        refocus = patience > 0 and generation - self.progress.improved >= patience
        allowed = breeders(self.species, generation, refocus=refocus, config=config)
        picks = ranking.starts + (rng.random(len(ranking.starts)) * ranking.counts).astype(np.int64)
        first_id = (generation + 1) * config.population
        offspring = plan(ranking, allowed, score, first_id, parent_key, config)
        self._genealogy.parentage = Parentage.of(offspring, generation * config.population + np.arange(len(self.pool)))
        children = self.children_of(offspring, first_id, gene_key)
        self._fresh = offspring.mutates > 0 if self._keeps_clones else None
        representatives = ranking.order[picks[allowed]]
        self.species = self._speciate(children, keep(self.species, allowed), representatives, generation + 1)
        self.pool, self._ranking = children, None
        improved = generation if refocus else self.progress.improved
        self.progress = Progress(generation=generation + 1, improved=improved)


def update_hall(
    hall: tuple[Champion, ...],
    score: NDArray[np.float64],
    size: int,
    sign: float,
    make: Callable[[int], Champion],
) -> tuple[Champion, ...]:
    """Return the hall of fame after a generation: at most `size` champions, best first, then earliest first.

    A genome enters only once, and keeps its first score.

    Parameters
    ----------
    score : float64 [genomes], higher is better; -inf for genomes that are not candidates
    sign : factor from the fitness of a champion to its score
    make : row of the generation → champion; called only for rows that are good enough
    """
    if size == 0:
        return ()
    worst = -np.inf if len(hall) < size else sign * hall[-1].fitness
    rows = np.flatnonzero(score > worst)
    if len(rows) == 0:
        return hall
    champions = list(hall)
    for row in rows[np.argsort(-score[rows], kind="stable")[:size]].tolist():
        if len(champions) >= size and score[row] <= sign * champions[size - 1].fitness:
            break
        champion = make(row)
        if all(champion.genome != other.genome for other in champions):
            champions.append(champion)
    champions.sort(key=lambda champion: -sign * champion.fitness)
    return tuple(champions[:size])
