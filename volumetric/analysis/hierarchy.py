"""Hierarchical grouping: the two nearest groups are merged until they are too far apart (agglomerative clustering).

Distances of merged groups follow Lance & Williams 1967; each round looks at the nearest neighbour of every group, so
N points take time and memory of the order of N².
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.analysis.distance import Metric, distances, matrix
from volumetric.errors import SpecError

Linkage = Literal["single", "complete", "average"]


def group(
    points: ArrayLike,
    *,
    threshold: float | None = None,
    groups: int | None = None,
    linkage: Linkage = "single",
    metric: Metric = "euclidean",
) -> NDArray[np.intp]:
    """Return the group of each point, numbered from 0 in the order in which groups first appear.

    Parameters
    ----------
    points : ``[N, D]``
    threshold : groups farther apart than this are not merged
    groups : number of groups to end with; give this or `threshold`
    linkage : distance of two groups: that of their nearest points, of their farthest, or the mean over all pairs
    metric : distance of two points

    Raises
    ------
    ShapeError
        `points` is no matrix of finite numbers.
    SpecError
        Not exactly one of `threshold` and `groups` is given, or one of them cannot be.
    """
    x = matrix(points)
    if (threshold is None) == (groups is None):
        raise SpecError("give either a threshold or a number of groups")
    if groups is not None and not 1 <= groups <= len(x):
        raise SpecError(f"cannot make {groups} groups of {len(x)} points")
    if linkage not in get_args(Linkage):
        raise SpecError(f"unknown linkage {linkage!r}", hint="one of " + ", ".join(get_args(Linkage)))
    limit = math.inf if threshold is None else threshold
    labels = _merge(distances(x, x, metric), linkage, limit, groups or 1)
    _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers]


def _merge(d: NDArray[np.float64], linkage: Linkage, limit: float, least: int) -> NDArray[np.intp]:
    n = len(d)
    labels, sizes = np.arange(n), np.ones(n)
    np.fill_diagonal(d, math.inf)
    nearest = d.argmin(1)
    for _ in range(n - least):
        a = int(d[np.arange(n), nearest].argmin())
        b = int(nearest[a])
        if d[a, b] > limit or math.isinf(d[a, b]):
            break
        if linkage == "single":
            row = np.minimum(d[a], d[b])
        elif linkage == "complete":
            row = np.maximum(d[a], d[b])
        else:
            row = (sizes[a] * d[a] + sizes[b] * d[b]) / (sizes[a] + sizes[b])
        row[[a, b]] = math.inf
        d[a], d[:, a] = row, row
        d[b], d[:, b] = math.inf, math.inf
        labels[labels == b] = a
        sizes[a] += sizes[b]
        # Only groups whose neighbour was one of the two, or that came nearer, can have another neighbour now.
        closer = row < d[np.arange(n), nearest]
        for i in np.flatnonzero((nearest == a) | (nearest == b) | closer | (np.arange(n) == a)):
            nearest[i] = d[i].argmin()
    return labels
