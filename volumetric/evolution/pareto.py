"""Choice by several objectives at once: fronts of what nothing beats, and room around each point.

Deb, Pratap, Agarwal & Meyarivan, "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Transactions on
Evolutionary Computation 6(2), 2002. More is better in every objective; negate what is to be small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.errors import ShapeError, SpecError

_BLOCK = 1 << 22
"""Comparisons made at a time: bounds the memory of large populations."""


def objectives_of(values: ArrayLike) -> NDArray[np.float64]:
    """Return `values` as float64 ``[points, objectives]``.

    Raises
    ------
    ShapeError
        It is not a table with at least one objective.
    SpecError
        A value is NaN or infinite.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or table.shape[1] < 1:
        raise ShapeError(f"objectives are a table [points, objectives], got shape {table.shape}")
    if not np.isfinite(table).all():
        row = int(np.argwhere(~np.isfinite(table))[0, 0])
        raise SpecError(f"point {row} has objectives {table[row].tolist()}", hint="objectives must be finite")
    return table


def front_ranks(objectives: ArrayLike) -> NDArray[np.int64]:
    """Return the front of each point: 0 where no point dominates it, 1 where only points of front 0 do, and so on.

    A point dominates another if it is at least as good in every objective and better in one. Equal points share a
    front. Takes O(points² · objectives) comparisons and O(points²) bits.
    """
    table = objectives_of(objectives)
    points = len(table)
    dominates = np.zeros((points, points), np.bool_)
    step = max(1, _BLOCK // max(1, points * table.shape[1]))
    for start in range(0, points, step):
        mine = table[start : start + step, None, :]
        dominates[start : start + step] = (mine >= table).all(-1) & (mine > table).any(-1)
    ranks = np.full(points, -1, np.int64)
    above = dominates.sum(axis=0)
    rank = 0
    while (free := (above == 0) & (ranks < 0)).any():
        ranks[free] = rank
        above = above - dominates[free].sum(axis=0)
        rank += 1
    return ranks


def crowding(objectives: ArrayLike, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how much room each point has within its front: the sum of the gaps between its neighbours.

    The gaps of an objective are measured in units of the front's extent. The ends of a front have infinite room.
    """
    table = objectives_of(objectives)
    room = np.zeros(len(table))
    for rank in np.unique(ranks):
        members = np.flatnonzero(ranks == rank)
        for values in table[members].T:
            order = np.argsort(values, kind="stable")
            sorted_values = values[order]
            extent = sorted_values[-1] - sorted_values[0]
            room[members[order[[0, -1]]]] = np.inf
            if extent > 0:
                room[members[order[1:-1]]] += (sorted_values[2:] - sorted_values[:-2]) / extent
    return room


def preference(objectives: ArrayLike) -> NDArray[np.int64]:
    """Return the points from the most to the least wanted: by front, then room; of equal ones the earlier first."""
    table = objectives_of(objectives)
    ranks = front_ranks(table)
    return np.lexsort((np.arange(len(table)), -crowding(table, ranks), ranks))
