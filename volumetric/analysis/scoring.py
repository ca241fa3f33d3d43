"""Deviations of outputs from targets, in buckets and as a score; and comparison of several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base.errors import ShapeError, SpecError
from volumetric.base.notebook_html import ShowsFields

_EDGES: Final = (10.0, 20.0, 30.0, 40.0, 50.0, 100.0)
BUCKETS: Final = ("0-10%", "10-20%", "20-30%", "30-40%", "40-50%", "50-100%", "100%+")
"""Names of the buckets of deviations; a bucket includes its upper end."""
_TINY: Final = 1e-10


def deviations(outputs: ArrayLike, targets: ArrayLike) -> NDArray[np.float64]:
    """Return ``|output − target| / |target| · 100`` for each element.

    If ``|target|`` is below 1e-10, it is ``|output − target| · 100``; if the result is not finite, 100.

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
class Evaluation(ShowsFields):
    """Summary of the deviations of a set of samples.

    Attributes
    ----------
    buckets : name of a bucket → number of samples in it
    score : mean of ``max(0, 100 − deviation)``
    mean_deviation : in percent
    failures : number of samples that deviate by more than 100 %
    worst : indices of at most five samples with the largest deviations, worst first
    exact : fraction of the samples whose output equals the target
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
    """Summarise the deviations of `outputs` from `targets`, one number for each sample; class ids count as numbers.

    Raises
    ------
    ShapeError
        The two differ in shape, or are empty.
    """
    off = deviations(outputs, targets).ravel()
    if not off.size:
        raise ShapeError("there are no samples to evaluate")
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
    """Return the fraction of rows whose argmax of `outputs` is the class id in `targets`.

    If targets have the shape of the outputs, they are probabilities and their argmax is the class; with a single column
    an output above 0.5 is class 1. Rows with a class id below 0, such as ignored rows, do not count.

    Raises
    ------
    ShapeError
        The shapes do not match, or no row counts.
    """
    right, counted = hits(outputs, targets)
    if not counted:
        raise ShapeError("no row has a class id from 0")
    return right / counted


def hits(outputs: ArrayLike, targets: ArrayLike) -> tuple[int, int]:
    """Return the number of correct rows, as defined in `accuracy`, and the number of rows that count.

    Raises
    ------
    ShapeError
        The shapes do not match.
    """
    y, t = np.asarray(outputs), np.asarray(targets)
    if t.shape == y.shape and t.ndim > 0:
        t = (t[..., 0] > 0.5).astype(np.int64) if y.shape[-1] == 1 else t.argmax(-1)
    if t.shape != y.shape[:-1] or not np.issubdtype(t.dtype, np.integer):
        raise ShapeError(f"outputs of shape {y.shape} need class ids of shape {y.shape[:-1]}, got {t.dtype} {t.shape}")
    chosen = (y[..., 0] > 0.5).astype(np.int64) if y.shape[-1] == 1 else y.argmax(-1)
    counted = t >= 0
    return int((chosen == t)[counted].sum()), int(counted.sum())


FULL = 0.99
"""Minimum coverage of a complete pair of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A pair of models.

    Attributes
    ----------
    first, second : names of the models
    coverage : fraction of the samples that at least one model gets right
    overlap : fraction that both get right
    complete : whether the coverage is 99 % or more
    """

    first: str
    second: str
    coverage: float
    overlap: float

    @property
    def complete(self) -> bool:
        """Whether the coverage is at least `FULL`, 99 %."""
        return self.coverage >= FULL


def complementary_matches(correct: Mapping[str, ArrayLike], min_coverage: float = 0.0) -> list[Match]:
    """Return all pairs of models that cover at least `min_coverage` of the samples, best first.

    Pairs are ordered by coverage, then by how little they overlap, then by name.

    Parameters
    ----------
    correct : name of a model → whether it was right, for each sample

    Raises
    ------
    ShapeError
        The models were evaluated on different numbers of samples, or on none.
    """
    masks = {name: np.asarray(mask, bool).ravel() for name, mask in correct.items()}
    sizes = {mask.size for mask in masks.values()}
    if len(sizes) > 1 or 0 in sizes:
        raise ShapeError(f"models must be evaluated on the same samples, got {sorted(sizes)} samples")
    matches = [_match(a, masks[a], b, masks[b]) for a, b in combinations(masks, 2)]
    covering = [match for match in matches if match.coverage >= min_coverage]
    return sorted(covering, key=lambda m: (-m.coverage, m.overlap, m.first, m.second))


def _match(a: str, right_a: NDArray[np.bool_], b: str, right_b: NDArray[np.bool_]) -> Match:
    either, both = (right_a | right_b).mean(), (right_a & right_b).mean()
    return Match(first=a, second=b, coverage=float(either), overlap=float(both))


def majority_vote(votes: Sequence[ArrayLike], weights: Sequence[float] | None = None) -> NDArray[np.int64]:
    """Return the class with most votes for each sample; the lowest class id wins a tie.

    Parameters
    ----------
    votes : class ids of each model, all of the same shape
    weights : weight of each model's vote (None: 1)

    Raises
    ------
    ShapeError
        The models voted on different samples.
    SpecError
        There is no vote, a class id is below 0, or `weights` is not one finite number from 0 for each model.
    """
    if not votes:
        raise SpecError("votes is empty, expected at least one model")
    arrays = [np.asarray(vote) for vote in votes]
    if len({a.shape for a in arrays}) > 1:
        raise ShapeError(f"votes must have the same shape, got {', '.join(str(a.shape) for a in arrays)}")
    ids = np.stack(arrays)
    if not np.issubdtype(ids.dtype, np.integer) or (ids.size and ids.min() < 0):
        raise SpecError("votes must be class ids: whole numbers from 0")
    vote_weights = np.ones(len(arrays)) if weights is None else np.asarray(weights, np.float64)
    if vote_weights.shape != (len(arrays),) or not np.isfinite(vote_weights).all() or (vote_weights < 0).any():
        raise SpecError(f"expected {len(arrays)} finite weights from 0, one for each model, got {weights}")
    classes = int(ids.max(initial=0)) + 1
    counts = np.zeros((classes, *ids.shape[1:]))
    for vote, weight in zip(ids, vote_weights, strict=True):
        np.put_along_axis(counts, vote[None], np.take_along_axis(counts, vote[None], 0) + weight, 0)
    return counts.argmax(0)


def similarity(correct_a: ArrayLike, correct_b: ArrayLike) -> float:
    """Return the cosine of two models' masks of correct samples: 1 if these are the same samples, 0 if disjoint.

    Raises
    ------
    ShapeError
        The masks differ in size.
    """
    a, b = np.asarray(correct_a, bool).ravel(), np.asarray(correct_b, bool).ravel()
    if a.size != b.size:
        raise ShapeError(f"masks must have the same size, got {a.size} and {b.size} samples")
    norm = np.sqrt(float(a.sum()) * float(b.sum()))
    return float((a & b).sum() / norm) if norm else 0.0
