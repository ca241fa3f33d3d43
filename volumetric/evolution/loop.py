"""The loop of every run: generations are asked for, evaluated and told until there is a reason to stop."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from volumetric.base.errors import SpecError
from volumetric.base.reporting import AnyReporter, telling
from volumetric.devices.open import AnyDevice
from volumetric.evolution.activate import Placement
from volumetric.evolution.evaluate import Cohort, Problem, Scorer
from volumetric.evolution.reporters import Event

F = TypeVar("F")
R = TypeVar("R")
Stop = Callable[[], bool]
ENDS: Final = ("generations", "solved", "stopped", "seconds", "evaluations", "patience")
"""Why a run ended: it has all its generations, reached the goal, was asked to, or used up one of its budgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run. Each is looked at between two generations; a generation is never cut short.

    Attributes
    ----------
    seconds : wall-clock time of one call of `evolve`; no generation begins after it
    evaluations : genomes evaluated since the run began, before an interruption too; no generation begins that would
        exceed it
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
class Meter:
    """A budget in use, from the moment it is made."""

    budget: Budget
    stop: Stop | None = None
    _began: float = field(default_factory=time.monotonic)

    def spent(self, generation: int, population: int, champion: int) -> str:
        """Return which of `ENDS` forbids another generation, else ``""``.

        Parameters
        ----------
        generation : the one that was just evaluated, from 0
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
    """A search that goes generation by generation: `F` is what evaluates genomes, `R` what is found.

    Attributes
    ----------
    ended : why the last call of `evolve` returned, see `volumetric.evolution.loop.ENDS`
    """

    ended: str = ""

    @property
    @abstractmethod
    def evaluated(self) -> int:
        """Generations that have been evaluated."""

    @abstractmethod
    def ask(self) -> Cohort:
        """Return the genomes that need to be evaluated."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that the run depends on, in one step."""

    def _prepare(self, fitness: F) -> None:
        """Let `fitness` complete the configuration, before anything is evaluated."""

    @abstractmethod
    def _evaluate(self, fitness: F, cohort: Cohort, executor: Executor | Scorer | None) -> None:
        """Evaluate and tell the genomes that `ask` returned."""

    @abstractmethod
    def _events(self) -> Sequence[Event]:
        """Return what is told of the generation that was just evaluated."""

    @abstractmethod
    def _spent(self, meter: Meter) -> str:
        """Return why no other generation is to follow, or an empty text."""

    def _before_saving(self, fitness: F) -> None:
        """Note what a problem with a memory of its own keeps."""

    @abstractmethod
    def _found(self) -> R:
        """Return what the run is for."""

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
        """Evaluate so many generations, fewer if a goal or a budget is reached, and return what was found.

        Parameters
        ----------
        fitness : ``function(genome)``, or ``function(genome, rng)`` with random numbers of the genome's own, to a
            number, for a `ParetoRun` to several; or a `Problem`, which scores all genomes at once. A problem's method
            ``configure(config)`` fills in what the configuration leaves open, as widths and the fitness threshold, and
            generation 0 is made anew by that; with a method ``confirm(genome) -> float``, a genome that reaches the
            threshold gets the fitness that it returns, and the run goes on if that is below the threshold; a problem
            with a memory of its own has methods ``state() -> dict of arrays`` and ``restore(state)``, which checkpoints
            use. A `ParetoRun` calls none of these three
        generations : how many to evaluate in this call
        device : where genomes of nodes and connections are activated when a problem activates all at once: a name or
            an open device; see `volumetric.evolution.activate.device_for`
        executor : runs fitness in threads, processes or on a cluster, with the same result; `Workers` also contains
            functions that hang or kill their process
        reporters : get every event as it happens: functions, as `print`, or objects (see
            `volumetric.base.reporting.Reporter`). They are closed at the end and may be used again
        checkpoint : file that the run is saved to, after every `checkpoint_every` generations and at the end
        budget : limits besides `generations`
        stop : asked after every generation whether to end

        Raises
        ------
        EvaluationError : fitness could not be computed
        SpecError : `generations` or `checkpoint_every` is below 1, or configuration and problem contradict each other
        UnsupportedError : a device was named that has no part in this
        """
        if generations < 1 or checkpoint_every < 1:
            raise SpecError(f"generations and checkpoint_every must be at least 1: {generations}, {checkpoint_every}")
        placement = Placement(device)
        placement.check(together=isinstance(fitness, Problem), executor=executor)
        self._prepare(fitness)
        meter, done = Meter(budget or Budget(), stop), self.evaluated
        self.ended = ""
        with telling(reporters, done, done) as tell:
            for step in range(1, generations + 1):
                cohort = replace(self.ask(), placement=placement)
                placement.check_genomes(cohort.pool)
                self._evaluate(fitness, cohort, executor)
                placement.check_used(fitness)
                for event in self._events() if reporters else ():
                    tell(event)
                self.ended = self._spent(meter) or ("generations" if step == generations else "")
                if checkpoint is not None and (step % checkpoint_every == 0 or self.ended):
                    self._before_saving(fitness)
                    self.save(checkpoint)
                if self.ended:
                    break
        return self._found()
