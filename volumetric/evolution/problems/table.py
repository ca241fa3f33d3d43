"""Reproduce a table of inputs and targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array
from volumetric.errors import ShapeError
from volumetric.evolution.config import EvolutionConfig
from volumetric.evolution.evaluate import Cohort
from volumetric.evolution.problems.demands import Demands

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
        """Return `config` with what it leaves open: widths, fitness threshold, activations.

        Where the configuration names no activation, outputs reach the targets: "steep_sigmoid" for those in 0 … 1,
        else "linear" behind nodes of "tanh".

        Raises
        ------
        SpecError : it names other widths, or looks for little fitness
        """
        within = bool((self.targets >= 0).all() and (self.targets <= 1).all())
        return Demands(
            problem="the table",
            inputs=self.inputs.shape[1],
            outputs=(self.targets.shape[1],),
            goal=self.goal,
            activation="steep_sigmoid" if within else "tanh",
            output_activation="steep_sigmoid" if within else "linear",
        ).met_by(config)

    def score_all(self, cohort: Cohort) -> F64Array:
        error = cohort.activate(self.inputs) - self.targets
        return self.best - np.einsum("grt,grt->g", error, error)
