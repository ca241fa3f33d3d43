"""When a run ends although nothing solved its problem."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from volumetric.errors import SpecError

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
