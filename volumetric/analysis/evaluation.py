"""How far outputs are from what was expected: deviations in percent, in buckets, and a score from 0 to 100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.errors import ShapeError

_EDGES: Final = (10.0, 20.0, 30.0, 40.0, 50.0, 100.0)
BUCKETS: Final = ("0-10%", "10-20%", "20-30%", "30-40%", "40-50%", "50-100%", "100%+")
"""Names of the buckets of deviations; each has its upper end."""
_TINY: Final = 1e-10


def deviations(outputs: ArrayLike, targets: ArrayLike) -> NDArray[np.float64]:
    """Return ``|output − target| / |target| · 100`` for each element.

    Where ``|target|`` is below 1e-10 it is ``|output − target| · 100``; where the result is not finite, 100.

    Raises
    ------
    ShapeError
        The two differ in shape.
    """
    y, t = np.asarray(outputs, np.float64), np.asarray(targets, np.float64)
    if y.shape != t.shape:
        raise ShapeError(f"outputs have shape {y.shape}, targets {t.shape}")
    with np.errstate(all="ignore"):
        off = np.abs(y - t) * 100
        size = np.abs(t)
        result = off / np.where(size < _TINY, 1.0, size)
    return np.where(np.isfinite(result), result, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Deviations of a set of samples, summed up.

    Attributes
    ----------
    buckets : name of a bucket → samples in it
    score : mean of ``max(0, 100 − deviation)``
    mean_deviation : in percent
    failures : samples that deviate by more than 100 %
    worst : numbers of the samples that deviate most, worst first, at most five
    exact : fraction of the samples whose value is the expected one
    total : number of samples
    """

    buckets: Mapping[str, int]
    score: float
    mean_deviation: float
    failures: int
    worst: tuple[int, ...]
    exact: float
    total: int


def evaluate(outputs: ArrayLike, targets: ArrayLike) -> Evaluation:
    """Sum up how far `outputs` are from `targets`, one number for each sample; class ids count as numbers.

    Raises
    ------
    ShapeError
        The two differ in shape, or are empty.
    """
    off = deviations(outputs, targets).ravel()
    if not off.size:
        raise ShapeError("there is no sample to evaluate")
    counts = np.bincount(np.searchsorted(_EDGES, off, side="left"), minlength=len(BUCKETS)).tolist()
    return Evaluation(
        buckets=dict(zip(BUCKETS, counts, strict=True)),
        score=float(np.maximum(0.0, 100.0 - off).mean()),
        mean_deviation=float(off.mean()),
        failures=counts[-1],
        worst=tuple(np.argsort(-off, kind="stable")[:5].tolist()),
        exact=float((np.asarray(outputs).ravel() == np.asarray(targets).ravel()).mean()),
        total=off.size,
    )


def accuracy(outputs: ArrayLike, targets: ArrayLike) -> float:
    """Return the fraction of rows of `outputs` whose largest element is at the class id in `targets`.

    Targets of the shape of the outputs are probabilities, and their largest element is the class; with a single column
    an output above 0.5 is class 1. Rows with a class id below 0, such as ignored ones, do not count.

    Raises
    ------
    ShapeError
        The shapes do not go together, or no row counts.
    """
    right, counted = hits(outputs, targets)
    if not counted:
        raise ShapeError("no row counts")
    return right / counted


def hits(outputs: ArrayLike, targets: ArrayLike) -> tuple[int, int]:
    """Return how many rows are in their class, as `accuracy` sees it, and how many count.

    Raises
    ------
    ShapeError
        The shapes do not go together.
    """
    y, t = np.asarray(outputs), np.asarray(targets)
    if t.shape == y.shape and t.ndim > 0:
        t = (t[..., 0] > 0.5).astype(np.int64) if y.shape[-1] == 1 else t.argmax(-1)
    if t.shape != y.shape[:-1] or not np.issubdtype(t.dtype, np.integer):
        raise ShapeError(f"outputs of shape {y.shape} need class ids of shape {y.shape[:-1]}, got {t.dtype} {t.shape}")
    chosen = (y[..., 0] > 0.5).astype(np.int64) if y.shape[-1] == 1 else y.argmax(-1)
    counted = t >= 0
    return int((chosen == t)[counted].sum()), int(counted.sum())
