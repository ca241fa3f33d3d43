"""The main loop of runs: ask for a generation, evaluate it, tell its fitness, until a reason to stop."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from volumetric.base.errors import SpecError
from volumetric.base.reporting import AnyReporter, started_reporters
from volumetric.devices.named_devices import AnyDevice
from volumetric.evolution.activate import GenomePlacement
from volumetric.evolution.evaluate import Cohort, Problem, Scorer
from volumetric.evolution.genealogy import GenealogyEvents
from volumetric.evolution.reporters import Event

F = TypeVar("F")
R = TypeVar("R")
Stop = Callable[[], bool]
ENDS: Final = ("generations", "solved", "stopped", "seconds", "evaluations", "patience")
"""Reasons for the end of a run: all generations done, goal reached, stop requested, or a budget used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run. They are checked between generations; a generation is never interrupted.

    Attributes
    ----------
    seconds : wall-clock time of one call of `evolve`; no generation starts after it
    evaluations : genomes evaluated since the start of the run, including before a resume; no generation starts that
        would exceed it
    patience : generations without a better champion
    """

    seconds: float | None = None
    evaluations: int | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        """Check that every limit is above 0."""
        for name in ("seconds", "evaluations", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"budget.{name} must be above 0, got {value}")


@dataclass(slots=True)
class BudgetMeter:
    """A budget in use, starting at construction."""

    budget: Budget
    stop: Stop | None = None
    _began: float = field(default_factory=time.monotonic)

    def spent(self, generation: int, population: int, champion: int) -> str:
        """Return the reason in `ENDS` against another generation, else ``""``.

        Parameters
        ----------
        generation : the last evaluated generation, from 0
        population : genomes of each generation
        champion : generation of the best genome so far
        """
        budget = self.budget
        if self.stop is not None and self.stop():
            return "stopped"
        if budget.seconds is not None and time.monotonic() - self._began >= budget.seconds:
            return "seconds"
        if budget.evaluations is not None and (generation + 2) * population > budget.evaluations:
            return "evaluations"
        if budget.patience is not None and generation - champion >= budget.patience:
            return "patience"
        return ""


class Loop(ABC, Generic[F, R]):
    """A search by generations: `F` is the type of the evaluation, `R` of the result.

    Attributes
    ----------
    ended : reason for the end of the last call of `evolve`, see `volumetric.evolution.loop.ENDS`
    """

    ended: str = ""
    _genealogy: GenealogyEvents

    @property
    @abstractmethod
    def evaluated(self) -> int:
        """Generations that have been evaluated."""

    @abstractmethod
    def ask(self) -> Cohort:
        """Return the genomes to evaluate."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the run atomically."""

    def _prepare(self, fitness: F) -> None:
        """Let `fitness` complete the configuration before the first evaluation."""

    @abstractmethod
    def _evaluate(self, fitness: F, cohort: Cohort, executor: Executor | Scorer | None) -> None:
        """Evaluate the genomes of `ask` and tell their fitness."""

    @abstractmethod
    def events(self, requests: Set[str] = frozenset()) -> Sequence[Event]:
        """Return the events of the last evaluated generation, and of those on request the ones in `requests`."""

    @abstractmethod
    def _spent(self, meter: BudgetMeter) -> str:
        """Return the reason to stop, or an empty text."""

    def _before_saving(self, fitness: F) -> None:
        """Store the state of a problem with memory."""

    @abstractmethod
    def _result(self) -> R:
        """Return the result of the run."""

    def evolve(
        self,
        fitness: F,
        generations: int,
        *,
        device: AnyDevice = "auto",
        executor: Executor | Scorer | None = None,
        reporters: Sequence[AnyReporter[Event]] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 10,
        budget: Budget | None = None,
        stop: Stop | None = None,
    ) -> R:
        """Evaluate `generations`, fewer if a goal or a budget is reached, and return the result.

        Parameters
        ----------
        fitness : ``function(genome)``, or ``function(genome, rng)`` with the genome's random generator, that returns a
            number, or several for a `ParetoRun`; or a `Problem`, which scores all genomes at once. A problem's method
            ``configure(config)`` completes the configuration, as widths and the fitness threshold, and generation 0 is
            created again from it. With a method ``confirm(genome) -> float``, a genome that reaches the threshold gets
            the returned fitness, and the run continues if that is below the threshold. A problem with memory has
            methods ``state() -> dict of arrays`` and ``restore(state)`` for checkpoints. A `ParetoRun` calls none of
            these three
        generations : number of generations to evaluate in this call
        device : a name or an open device that activates genomes of nodes and connections for problems that activate
            all at once; see `volumetric.evolution.activate.device_for`
        executor : runs fitness in threads, processes or on a cluster, with the same result; `Workers` also survives
            functions that hang or kill their process
        reporters : receive every event: functions, as `print`, or objects (see
            `volumetric.base.reporting.Reporter`). They are closed at the end and may be reused
        checkpoint : file for the state of the run, written every `checkpoint_every` generations and at the end
        budget : limits in addition to `generations`
        stop : called after every generation; true ends the run

        Raises
        ------
        EvaluationError : fitness could not be computed
        SpecError : `generations` or `checkpoint_every` is below 1, or configuration and problem contradict each other
        UnsupportedError : a named device would not be used
        """
        if generations < 1 or checkpoint_every < 1:
            raise SpecError(
                f"generations and checkpoint_every must be at least 1, got {generations}, {checkpoint_every}"
            )
        placement = GenomePlacement(device)
        placement.check(together=isinstance(fitness, Problem), executor=executor)
        self._prepare(fitness)
        meter, done = BudgetMeter(budget or Budget(), stop), self.evaluated
        self.ended = ""
        self._genealogy.begin()
        with started_reporters(reporters, done, done) as tell:
            for step in range(1, generations + 1):
                cohort = replace(self.ask(), placement=placement)
                placement.check_genomes(cohort.pool)
                self._evaluate(fitness, cohort, executor)
                placement.check_used(fitness)
                for event in self.events(tell.requests) if reporters else ():
                    tell(event)
                self.ended = self._spent(meter) or ("generations" if step == generations else "")
                if checkpoint is not None and (step % checkpoint_every == 0 or self.ended):
                    self._before_saving(fitness)
                    self.save(checkpoint)
                if self.ended:
                    break
        return self._result()
