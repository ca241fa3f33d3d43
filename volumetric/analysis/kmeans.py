"""K-means clustering (Lloyd 1982) with the starts of k-means++ (Arthur & Vassilvitskii 2007)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric import rng
from volumetric.analysis.distance import F64Array, distances, matrix
from volumetric.errors import ShapeError, SpecError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clusters:
    """Result of `kmeans`.

    Attributes
    ----------
    centers : float64 ``[K, D]``
    labels : cluster of each point, ``[N]``
    inertia : sum of the squared distances of all points from their centres
    iterations : rounds of the best start
    """

    centers: F64Array
    labels: NDArray[np.intp]
    inertia: float
    iterations: int


def kmeans(
    points: ArrayLike,
    clusters: int,
    *,
    starts: int = 10,
    max_iterations: int = 300,
    seed: int = 0,
    init: ArrayLike | None = None,
) -> Clusters:
    """Put points into clusters so that the squared distances from the clusters' means are small.

    Parameters
    ----------
    points : ``[N, D]``
    clusters : K, at most the number of points
    starts : random starts, of which the result with the least inertia is kept
    max_iterations : rounds at most; a start ends earlier when no label changes
    seed : of the starts
    init : centres to start from, ``[K, D]``, in place of random ones

    Raises
    ------
    ShapeError
        `points` or `init` is no matrix that fits.
    SpecError
        A number is below 1, or there are fewer points than clusters.
    """
    x = matrix(points)
    if min(clusters, starts, max_iterations) < 1 or clusters > len(x):
        raise SpecError(f"cannot put {len(x)} points into {clusters} clusters ({starts} starts)")
    if init is not None:
        given = matrix(init)
        if given.shape != (clusters, x.shape[1]):
            raise ShapeError(f"{clusters} centres of {x.shape[1]} features have another shape than {given.shape}")
        return _lloyd(x, given, max_iterations)
    results = (_lloyd(x, _spread(x, clusters, rng.generator(seed, i)), max_iterations) for i in range(starts))
    return min(results, key=lambda result: result.inertia)


def _spread(x: F64Array, clusters: int, random: np.random.Generator) -> F64Array:
    """Draw centres among the points, each with a probability in proportion to its squared distance from the others."""
    chosen = [int(random.integers(len(x)))]
    nearest = np.square(distances(x, x[chosen])[:, 0])
    while len(chosen) < clusters:
        total = nearest.sum()
        if total == 0:  # fewer different points than clusters
            chosen.append(next(i for i in range(len(x)) if i not in chosen))
            continue
        chosen.append(int(random.choice(len(x), p=nearest / total)))
        nearest = np.minimum(nearest, np.square(distances(x, x[chosen[-1:]])[:, 0]))
    return x[chosen]


def _lloyd(x: F64Array, centers: F64Array, max_iterations: int) -> Clusters:
    labels, done, moving = distances(x, centers).argmin(1), 0, True
    while moving and done < max_iterations:
        centers = _means(x, labels, centers)
        before, labels = labels, distances(x, centers).argmin(1)
        moving, done = bool((labels != before).any()), done + 1
    inertia = float(np.square(x - centers[labels]).sum())
    return Clusters(centers=centers, labels=labels, inertia=inertia, iterations=done)


def _means(x: F64Array, labels: NDArray[np.intp], centers: F64Array) -> F64Array:
    """Return the mean of each cluster; an empty one moves to the point that is farthest from its centre."""
    means = centers.copy()
    off = np.square(x - centers[labels]).sum(1)
    for k in range(len(centers)):
        mine = labels == k
        if mine.any():
            means[k] = x[mine].mean(0)
        else:
            far = int(off.argmax())
            means[k], off[far] = x[far], 0
    return means
