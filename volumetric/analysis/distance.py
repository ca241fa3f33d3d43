"""Distances between rows."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.errors import ShapeError, SpecError

Metric = Literal["euclidean", "cosine"]
F64Array = NDArray[np.float64]


def matrix(points: ArrayLike) -> F64Array:
    """Return points as float64 ``[N, D]``; raise `ShapeError` unless there is one and all are finite."""
    x = np.asarray(points, np.float64)
    if x.ndim != 2 or not len(x):
        raise ShapeError(f"points are rows of a matrix, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ShapeError("points must be finite")
    return x


def distances(a: F64Array, b: F64Array, metric: Metric = "euclidean") -> F64Array:
    """Return the distances of all rows of `a` from all rows of `b`, ``[A, B]``.

    ``"euclidean"``: ``‖a − b‖``. ``"cosine"``: ``1 − a·b / (‖a‖ ‖b‖)``; a row of zeros is at distance 1 from all.
    """
    if metric == "cosine":
        return np.clip(1 - _unit(a) @ _unit(b).T, 0, 2)
    if metric != "euclidean":
        raise SpecError(f"unknown metric {metric!r}", hint="one of " + ", ".join(get_args(Metric)))
    # From a common middle, the squares are as small as the distances, so that their difference keeps its precision.
    middle = a.mean(axis=0)
    a, b = a - middle, b - middle
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * (a @ b.T)
    return np.sqrt(np.maximum(squares, 0))


def _unit(x: F64Array) -> F64Array:
    norms = np.sqrt((x * x).sum(1, keepdims=True))
    return x / np.where(norms == 0, 1, norms)
