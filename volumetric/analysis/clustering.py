"""Clusters of points: k-means, hierarchies, silhouettes, and the distances that all three use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base import rng
from volumetric.base.errors import ShapeError, SpecError

Metric = Literal["euclidean", "cosine"]
F64Array = NDArray[np.float64]


def matrix(points: ArrayLike) -> F64Array:
    """Return points as float64 ``[N, D]``; raise `ShapeError` if there is no point or a value is not finite."""
    x = np.asarray(points, np.float64)
    if x.ndim != 2 or not len(x):
        raise ShapeError(f"points must be rows of a matrix, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ShapeError("points must be finite")
    return x


def distances(a: F64Array, b: F64Array, metric: Metric = "euclidean") -> F64Array:
    """Return the distances of all rows of `a` from all rows of `b`, ``[A, B]``.

    ``"euclidean"``: ``‖a − b‖``. ``"cosine"``: ``1 − a·b / (‖a‖ ‖b‖)``; a row of zeros is at distance 1 from all.
    """
    if metric == "cosine":
        return np.clip(1 - _unit_rows(a) @ _unit_rows(b).T, 0, 2)
    if metric != "euclidean":
        raise SpecError(f"unknown metric {metric!r}", hint="use one of " + ", ".join(get_args(Metric)))
    # Centred points have squares as small as the distances, so their difference stays precise.
    middle = a.mean(axis=0)
    a, b = a - middle, b - middle
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * (a @ b.T)
    return np.sqrt(np.maximum(squares, 0))


def _unit_rows(x: F64Array) -> F64Array:
    norms = np.sqrt((x * x).sum(1, keepdims=True))
    return x / np.where(norms == 0, 1, norms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clusters:
    """Result of `kmeans`.

    Attributes
    ----------
    centers : float64 ``[K, D]``
    labels : cluster of each point, ``[N]``
    inertia : sum of the squared distances of all points to their centres
    iterations : number of iterations of the best start
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
    """Assign points to clusters so that the squared distances to the cluster means are small.

    Parameters
    ----------
    points : ``[N, D]``
    clusters : K, at most the number of points
    starts : number of random starts; the result with the lowest inertia is returned
    max_iterations : maximum number of iterations; a start ends earlier when no label changes
    seed : seed of the random starts
    init : initial centres, ``[K, D]``, instead of random ones

    Raises
    ------
    ShapeError
        `points` or `init` is not a matrix of the right shape.
    SpecError
        A number is below 1, or there are fewer points than clusters.
    """
    x = matrix(points)
    if min(clusters, starts, max_iterations) < 1 or clusters > len(x):
        raise SpecError(f"cannot put {len(x)} points into {clusters} clusters ({starts} starts)")
    if init is not None:
        centres = matrix(init)
        if centres.shape != (clusters, x.shape[1]):
            raise ShapeError(f"init has shape {centres.shape}, expected {clusters} centres of {x.shape[1]} features")
        return _lloyd(x, centres, max_iterations)
    results = (_lloyd(x, _spread_centres(x, clusters, rng.generator(seed, i)), max_iterations) for i in range(starts))
    return min(results, key=lambda result: result.inertia)


def _spread_centres(x: F64Array, clusters: int, random: np.random.Generator) -> F64Array:
    """Draw centres among the points, with probabilities proportional to the squared distance to the centres so far."""
    chosen = [int(random.integers(len(x)))]
    nearest = np.square(distances(x, x[chosen])[:, 0])
    while len(chosen) < clusters:
        total = nearest.sum()
        if total == 0:  # fewer distinct points than clusters
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
    """Return the mean of each cluster; an empty cluster moves to the point farthest from its centre."""
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
    groups : final number of groups; give this or `threshold`
    linkage : distance of two groups: of their nearest points, of their farthest points, or the mean over all pairs
    metric : distance of two points

    Raises
    ------
    ShapeError
        `points` is not a matrix of finite numbers.
    SpecError
        Both or neither of `threshold` and `groups` are given, or a value is out of range.
    """
    x = matrix(points)
    if (threshold is None) == (groups is None):
        raise SpecError("pass either threshold or groups, not both or neither")
    if groups is not None and not 1 <= groups <= len(x):
        raise SpecError(f"cannot form {groups} groups from {len(x)} points")
    if linkage not in get_args(Linkage):
        raise SpecError(f"unknown linkage {linkage!r}", hint="use one of " + ", ".join(get_args(Linkage)))
    limit = math.inf if threshold is None else threshold
    labels = _merge(distances(x, x, metric), linkage, limit, groups or 1)
    _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers]


def _merge(d: NDArray[np.float64], linkage: Linkage, limit: float, least: int) -> NDArray[np.intp]:
    """Return the label of each point, ``[N]``, after merging the nearest groups until they are `limit` apart.

    At least `least` groups remain. The distances `d`, ``[N, N]``, are overwritten.
    """
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
        # The neighbour changes only for groups whose neighbour was merged, or that are nearer to the merged group.
        closer = row < d[np.arange(n), nearest]
        for i in np.flatnonzero((nearest == a) | (nearest == b) | closer | (np.arange(n) == a)):
            nearest[i] = d[i].argmin()
    return labels


def silhouettes(points: ArrayLike, labels: ArrayLike, *, metric: Metric = "euclidean") -> NDArray[np.float64]:
    """Return ``(b − a) / max(a, b)`` of each point, in −1 … 1.

    a is its mean distance to the other points of its cluster, b the smallest mean distance to another cluster. A point
    alone in its cluster has 0, as Rousseeuw defines.

    Raises
    ------
    ShapeError
        The number of labels differs from the number of points.
    SpecError
        There are fewer than two clusters.
    """
    x, label_array = matrix(points), np.asarray(labels)
    if label_array.shape != (len(x),):
        raise ShapeError(f"expected one label for each of {len(x)} points, got shape {label_array.shape}")
    names, ids, sizes = np.unique(label_array, return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise SpecError("a silhouette needs at least two clusters")
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
