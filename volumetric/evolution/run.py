"""A run of evolution, whatever its genomes are: ask for a generation, tell its fitness, again."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.errors import SpecError
from volumetric.evolution.budget import Budget, Meter, Stop
from volumetric.evolution.config import RunConfig
from volumetric.evolution.evaluate import (
    Cohort,
    EvaluationError,
    Failure,
    Fitness,
    Genomes,
    Problem,
    Scorer,
    Scores,
    checked,
    evaluate,
)
from volumetric.evolution.generation_events import generation_events
from volumetric.evolution.hall import Champion, entered
from volumetric.evolution.reporters import Event
from volumetric.evolution.selection import Offspring, breeders, plan
from volumetric.evolution.species import Ranking, SpeciesTable, keep, rank, remember
from volumetric.reporting import AnyReporter, telling
from volumetric.rng import fresh_seed, generator

BREEDING_STREAM = 0
C = TypeVar("C", bound=RunConfig)
P = TypeVar("P", bound=Genomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands.

    Attributes
    ----------
    generation : number of the current generation, from 0
    improved : generation in which the best score last rose, or in which the search was last refocused
    fitness : float64 [genomes] of the current generation, None while it is not evaluated
    failures : genomes of it that have no fitness of their own
    """

    generation: int = 0
    improved: int = 0
    fitness: NDArray[np.float64] | None = None
    failures: tuple[Failure, ...] = ()


class Run(ABC, Generic[C, P]):
    """What all runs share. Subclasses say what a genome is: how the first are made, how they breed, how they differ.

    Parameters
    ----------
    config : rules of the run
    seed : of all random numbers; None chooses one, which `seed` tells

    Attributes
    ----------
    champion : the best genome so far
    hall : the best different ones, ``config.hall_of_fame`` at most, best first
    ended : why the last call of `evolve` returned, see `volumetric.evolution.budget.ENDS`
    extras : arrays that a problem keeps in checkpoints, see `evolve`
    """

    def __init__(self, config: C, seed: int | None = None) -> None:
        if seed is not None and seed < 0:
            raise SpecError(f"a seed is not negative, got {seed}")
        self._ranking: Ranking | None = None
        self._fresh: NDArray[np.bool_] | None = None
        self.seed = fresh_seed() if seed is None else seed
        self.champion: Champion | None = None
        self.hall: tuple[Champion, ...] = ()
        self.ended = ""
        self.extras: dict[str, NDArray[Any]] = {}
        self.progress = Progress()
        self._begin(config)

    def _begin(self, config: C) -> None:
        """Make generation 0 by `config`."""
        self.config = config
        self.pool: P = self._first(generator(self.seed, BREEDING_STREAM))
        none = SpeciesTable.none(config.species.threshold)
        self.species = self._speciate(self.pool, none, np.empty(0, np.int64), 0)

    @abstractmethod
    def _first(self, rng: np.random.Generator) -> P:
        """Return the genomes of generation 0, and begin to count what is new in them."""

    @abstractmethod
    def children_of(self, offspring: Offspring, first_id: int, key: np.uint64) -> P:
        """Return one child of ``self.pool`` for each row of `offspring`; `first_id` and `key` name random streams."""

    @abstractmethod
    def _speciate(
        self, pool: P, table: SpeciesTable, representatives: NDArray[np.int64], generation: int
    ) -> SpeciesTable:
        """Return the species of `pool`; `representatives` are rows of ``self.pool``, one for each in `table`."""

    @abstractmethod
    def size_of(self, genome: Any) -> tuple[int, int]:
        """Return how many nodes beyond the first ones a genome has, and how many active connections, for reports."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that the run depends on, in one step."""

    @property
    def _keeps_clones(self) -> bool:
        """Whether children that `Offspring` does not mutate are their parents unchanged."""
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
        """Fitness of the current generation, signed so that more is better; raise `SpecError` before it is known."""
        if self.progress.fitness is None:
            raise SpecError(f"generation {self.generation} has no fitness yet", hint="call tell() first")
        return self.sign * self.progress.fitness

    @property
    def solved(self) -> bool:
        """Whether the best genome so far reaches the fitness threshold."""
        goal = self.config.fitness_threshold
        return self.champion is not None and goal is not None and self.sign * (self.champion.fitness - goal) >= 0

    def ask(self) -> Cohort:
        """Return the generation that needs fitness, which is bred if the last one has its fitness already."""
        if self.progress.fitness is not None:
            self._breed(self.progress.fitness)
        return self._cohort()

    def tell(self, fitness: ArrayLike | Scores) -> None:
        """Give every genome of the last `ask` its fitness.

        Parameters
        ----------
        fitness : one number for each genome, in order; NaN and infinity mean that it failed

        Raises
        ------
        EvaluationError : all genomes failed, or one did and ``on_failure`` is "raise"
        ShapeError : there is not one number for each genome
        SpecError : this generation has its fitness already
        """
        if self.progress.fitness is not None:
            raise SpecError(f"generation {self.generation} has its fitness already", hint="call ask() first")
        scores = fitness if isinstance(fitness, Scores) else checked(fitness, self._cohort())
        values = self._without_failures(scores)
        score = self.sign * values
        best = int(score.argmax())
        improved = self.progress.improved
        if self.champion is None or score[best] > self.sign * self.champion.fitness:
            improved = self.generation
            self.champion = self._as_champion(best, values)
        # A clone was a candidate when it was new; comparing genomes costs more than most of a generation.
        fresh = score if self._fresh is None else np.where(self._fresh, score, -np.inf)
        self.hall = entered(
            self.hall, fresh, self.config.hall_of_fame, self.sign, lambda row: self._as_champion(row, values)
        )
        self._ranking = rank(self.species, score)
        self.species = remember(self.species, self._ranking, self.generation)
        self.progress = replace(self.progress, fitness=values, improved=improved, failures=scores.failures)

    def evolve(
        self,
        fitness: Fitness | Problem,
        generations: int,
        *,
        executor: Executor | Scorer | None = None,
        reporters: Sequence[AnyReporter[Event]] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 10,
        budget: Budget | None = None,
        stop: Stop | None = None,
    ) -> Champion:
        """Evaluate so many generations, fewer if a goal or a budget is reached, and return the best genome ever.

        Parameters
        ----------
        fitness : ``function(genome) -> float``, or ``function(genome, rng)`` with random numbers of the genome's own,
            or a `Problem`, which scores all genomes at once. If the problem has a method ``configure(config)``, it
            fills in what the configuration leaves open, as widths and the fitness threshold; generation 0 is made anew
            by that. If it has a method ``confirm(genome) -> float``, a genome that reaches the threshold gets the
            fitness that it returns, and the run goes on if that is below the threshold. A problem with a memory of its
            own has methods ``state() -> dict of arrays`` and ``restore(state)``, which checkpoints use
        generations : how many to evaluate in this call
        executor : runs fitness in threads, processes or on a cluster, with the same result; `Workers` also contains
            functions that hang or kill their process
        reporters : get every event as it happens: functions, as `print`, or objects (see
            `volumetric.reporting.Reporter`). They are closed at the end and may be used again
        checkpoint : file that the run is saved to, after every `checkpoint_every` generations and at the end
        budget : limits besides `generations`
        stop : asked after every generation whether to end

        Raises
        ------
        EvaluationError : fitness could not be computed
        SpecError : `generations` or `checkpoint_every` is below 1, or configuration and problem contradict each other
        """
        if generations < 1 or checkpoint_every < 1:
            raise SpecError(f"generations and checkpoint_every must be at least 1: {generations}, {checkpoint_every}")
        self._adopt(fitness)
        restore, meter = getattr(fitness, "restore", None), Meter(budget or Budget(), stop)
        if restore is not None and self.extras:
            restore(self.extras)
            self.extras = {}
        self.ended = ""
        done = self.generation + (self.progress.fitness is not None)
        with telling(reporters, done, done) as tell:
            for step in range(1, generations + 1):
                before = self.species
                self.tell(evaluate(fitness, self.ask(), executor))
                self._confirm(fitness)
                if reporters:
                    for event in generation_events(self, before):
                        tell(event)
                self.ended = self._end(meter) or ("generations" if step == generations else "")
                if checkpoint is not None and (step % checkpoint_every == 0 or self.ended):
                    self.extras = getattr(fitness, "state", dict)()
                    self.save(checkpoint)
                if self.ended:
                    break
        if self.champion is None:
            raise EvaluationError("no generation was evaluated")
        return self.champion

    def _adopt(self, fitness: Fitness | Problem) -> None:
        """Let a problem fill in what the configuration leaves open."""
        configure = getattr(fitness, "configure", None)
        config = self.config if configure is None else configure(self.config)
        if config == self.config:
            return
        if self.generation == 0 and self.progress.fitness is None:
            self._begin(config)
            return
        self._check_fit(config)
        self.config = config

    def _check_fit(self, config: C) -> None:
        """Raise `SpecError` if genomes that exist cannot go on by `config`."""

    def _end(self, meter: Meter) -> str:
        """Why no other generation is to follow, or an empty text."""
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
        """Ask a problem that scores by chance for more, before a genome that was perhaps lucky ends the run."""
        confirm = getattr(fitness, "confirm", None)
        if confirm is None or not self.solved or self.champion is None or self.champion.generation < self.generation:
            return
        self.champion = replace(self.champion, fitness=float(confirm(self.champion.genome)))

    @property
    def sign(self) -> float:
        """What fitness is multiplied by so that more is better."""
        return 1.0 if self.config.fitness_criterion == "max" else -1.0

    def _cohort(self) -> Cohort:
        first_id = self.generation * self.config.population
        return Cohort(pool=self.pool, generation=self.generation, first_id=first_id, seed=self.seed)

    def _without_failures(self, scores: Scores) -> NDArray[np.float64]:
        """Fitness with a number for the genomes that failed, as the configuration says."""
        if not scores.failures:
            return scores.fitness
        first = f"genome {scores.failures[0].genome}: {scores.failures[0].reason}"
        if self.config.on_failure == "raise" or len(scores.failures) == len(self.pool):
            raise EvaluationError(
                f"{len(scores.failures)} of {len(self.pool)} genomes of generation {self.generation} failed; {first}",
                hint="the fitness function must return a finite number; called with one genome it shows what is wrong",
            )
        value = self.config.failure_fitness
        if value is None:
            value = np.nanmin(scores.fitness) if self.config.fitness_criterion == "max" else np.nanmax(scores.fitness)
        return np.where(np.isnan(scores.fitness), value, scores.fitness)

    def _breed(self, fitness: NDArray[np.float64]) -> None:
        """Replace the generation by its children."""
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
        children = self.children_of(offspring, first_id, gene_key)
        self._fresh = offspring.mutates > 0 if self._keeps_clones else None
        representatives = ranking.order[picks[allowed]]
        self.species = self._speciate(children, keep(self.species, allowed), representatives, generation + 1)
        self.pool, self._ranking = children, None
        improved = generation if refocus else self.progress.improved
        self.progress = Progress(generation=generation + 1, improved=improved)
