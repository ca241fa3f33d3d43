"""Silhouettes: how much nearer points are to their own cluster than to the next one (Rousseeuw 1987)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.analysis.distance import Metric, distances, matrix
from volumetric.errors import ShapeError, SpecError


def silhouettes(points: ArrayLike, labels: ArrayLike, *, metric: Metric = "euclidean") -> NDArray[np.float64]:
    """Return ``(b − a) / max(a, b)`` of each point, in −1 … 1.

    a is its mean distance from the other points of its cluster, b the least mean distance from another cluster. A point
    alone in its cluster has 0, as Rousseeuw defines.

    Raises
    ------
    ShapeError
        There is not one label for each point.
    SpecError
        There are fewer than two clusters.
    """
    x, given = matrix(points), np.asarray(labels)
    if given.shape != (len(x),):
        raise ShapeError(f"{len(x)} points need as many labels, got shape {given.shape}")
    names, ids, sizes = np.unique(given, return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise SpecError("a silhouette compares at least two clusters")
    d = distances(x, x, metric)
    np.fill_diagonal(d, 0)
    sums = np.stack([d[:, ids == k].sum(1) for k in range(len(names))], axis=1)
    at, own = np.arange(len(x)), sizes[ids]
    a = sums[at, ids] / np.maximum(own - 1, 1)
    means = sums / sizes
    means[at, ids] = np.inf
    b = means.min(1)
    top = np.maximum(a, b)
    return np.where((own > 1) & (top > 0), (b - a) / np.where(top > 0, top, 1), 0.0)


def silhouette(points: ArrayLike, labels: ArrayLike, *, metric: Metric = "euclidean") -> float:
    """Return the mean of `silhouettes`."""
    return float(silhouettes(points, labels, metric=metric).mean())
