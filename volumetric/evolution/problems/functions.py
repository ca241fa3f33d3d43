"""Fit a function of one variable on a grid of points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.problems.table import Table

F64Array = NDArray[np.float64]


def function(target: Callable[[F64Array], F64Array], low: float = -1.0, high: float = 1.0, points: int = 32) -> Table:
    """Return the problem of fitting `target` at evenly spaced points from `low` to `high`.

    Fitness is minus the sum of squared errors; solved when their mean is 0.001 of the target's variance. Outputs follow
    the targets, see `Table.configure`.
    """
    x = np.linspace(low, high, points)[:, None]
    y = np.asarray(target(x), np.float64)
    return Table.of(x, y, best=0.0, goal=-0.001 * float(y.var()) * y.size)
