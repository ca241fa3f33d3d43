"""Reproduce a table of inputs and targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array
from volumetric.errors import ShapeError
from volumetric.evolution.config import EvolutionConfig
from volumetric.evolution.evaluate import Cohort

F64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Fitness is ``best − Σ (output − target)²`` over all rows and outputs; more is better.

    Attributes
    ----------
    inputs, targets : float64 [rows, inputs] and [rows, outputs]
    best : fitness of a genome that makes no error
    goal : fitness at which the problem counts as solved

    Raises
    ------
    ShapeError : the two have no rows, or another number of them
    """

    separable: ClassVar[bool] = True

    inputs: F64Array
    targets: F64Array
    best: float
    goal: float

    def __post_init__(self) -> None:
        if self.inputs.ndim != 2 or self.targets.ndim != 2 or not 0 < len(self.inputs) == len(self.targets):
            raise ShapeError(f"inputs {self.inputs.shape} and targets {self.targets.shape} must have the same rows")

    @staticmethod
    def of(inputs: Array, targets: Array, *, best: float | None = None, goal: float | None = None) -> Table:
        """Return the problem of a table; `best` is one point a target by default, and `goal` 99 % of it."""
        x, y = np.asarray(inputs, np.float64), np.asarray(targets, np.float64)
        top = float(y.size) if best is None else best
        return Table(inputs=x, targets=y, best=top, goal=0.99 * top if goal is None else goal)

    def configure(self, config: EvolutionConfig) -> EvolutionConfig:
        """Return `config` with the widths and the fitness threshold of this problem."""
        genome = replace(config.genome, inputs=self.inputs.shape[1], outputs=self.targets.shape[1])
        return replace(config, genome=genome, fitness_criterion="max", fitness_threshold=self.goal)

    def score_all(self, cohort: Cohort) -> F64Array:
        error = cohort.activate(self.inputs) - self.targets
        return self.best - np.einsum("grt,grt->g", error, error)
