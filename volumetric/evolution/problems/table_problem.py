"""Fitting a table of inputs and targets: a custom table, a function of one variable, or parity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.evolution.evaluate import Cohort
from volumetric.evolution.evolution_config import EvolutionConfig
from volumetric.evolution.problems.demands import Demands

F64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Fitness is ``best − Σ (output − target)²`` over all rows and outputs; higher is better.

    Attributes
    ----------
    inputs, targets : float64 [rows, inputs] and [rows, outputs]
    best : fitness of a genome without error
    goal : fitness that counts as solved

    Raises
    ------
    ShapeError : the two have no rows, or different numbers of rows, or a number that is not finite
    """

    separable: ClassVar[bool] = True

    inputs: F64Array
    targets: F64Array
    best: float
    goal: float

    def __post_init__(self) -> None:
        if self.inputs.ndim != 2 or self.targets.ndim != 2 or not 0 < len(self.inputs) == len(self.targets):
            raise ShapeError(
                f"inputs {self.inputs.shape} and targets {self.targets.shape} must have the same number of rows",
                hint="pass one row of targets for each row of inputs: [samples, inputs] and [samples, outputs]",
            )
        for name, array in (("inputs", self.inputs), ("targets", self.targets)):
            if not np.isfinite(array).all():
                place = ", ".join(map(str, np.argwhere(~np.isfinite(array))[0]))
                raise ShapeError(
                    f"{name}[{place}] is not finite", hint="remove these rows, or fill in the missing values"
                )

    @staticmethod
    def of(inputs: Array, targets: Array, *, best: float | None = None, goal: float | None = None) -> Table:
        """Return the problem of a table; by default `best` is one point per target, and `goal` 99 % of it."""
        x, y = np.asarray(inputs, np.float64), np.asarray(targets, np.float64)
        top = float(y.size) if best is None else best
        return Table(inputs=x, targets=y, best=top, goal=0.99 * top if goal is None else goal)

    def configure(self, config: EvolutionConfig) -> EvolutionConfig:
        """Return `config` with missing values: widths, fitness threshold, activations.

        If the configuration sets no activation, outputs can reach the targets: "steep_sigmoid" for targets in 0 … 1,
        else "linear" after nodes with "tanh".

        Raises
        ------
        SpecError : it sets other widths, or minimises fitness
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
        """Return `best` minus the summed squared error of each genome, float64 ``[genomes]``."""
        error = cohort.activate(self.inputs) - self.targets
        return self.best - np.einsum("grt,grt->g", error, error)


def function(target: Callable[[F64Array], F64Array], low: float = -1.0, high: float = 1.0, points: int = 32) -> Table:
    """Return the problem of fitting `target` at evenly spaced points from `low` to `high`.

    Fitness is minus the sum of squared errors; it is solved when their mean is 0.001 of the target's variance. Output
    activations follow the targets, see `Table.configure`.
    """
    x = np.linspace(low, high, points)[:, None]
    y = np.asarray(target(x), np.float64)
    return Table.of(x, y, best=0.0, goal=-0.001 * float(y.var()) * y.size)


def parity(bits: int) -> Table:
    """Return the problem with all 2ⁿ rows, solved at 97.5 % of the points.

    Raises
    ------
    SpecError : `bits` is not 2 to 16
    """
    if not 2 <= bits <= 16:
        raise SpecError(f"parity takes 2 to 16 bits, got {bits}")
    rows = np.arange(1 << bits)
    inputs = (rows[:, None] >> np.arange(bits)) & 1
    targets = inputs.sum(axis=1, keepdims=True) % 2
    return Table.of(inputs, targets, goal=0.975 * len(rows))


def xor() -> Table:
    """Return the problem with two inputs: fitness 4 − Σ error², solved at 3.9."""
    return parity(2)
