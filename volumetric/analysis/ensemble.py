"""Ensembles: which models complete each other, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.errors import ShapeError, SpecError

FULL = 0.99
"""Coverage from which two models count as complete together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two models side by side.

    Attributes
    ----------
    first, second : their names
    coverage : fraction of the samples that at least one of them has right
    overlap : fraction that both have right
    complete : whether the coverage is 99 % or more
    """

    first: str
    second: str
    coverage: float
    overlap: float

    @property
    def complete(self) -> bool:
        return self.coverage >= FULL


def complementary_matches(correct: Mapping[str, ArrayLike], min_coverage: float = 0.0) -> list[Match]:
    """Return all pairs of models that cover at least `min_coverage` of the samples, best first.

    Pairs are ordered by coverage, then by how little they overlap, then by name.

    Parameters
    ----------
    correct : name of a model → for each sample whether it was right

    Raises
    ------
    ShapeError
        The models were judged on different numbers of samples, or on none.
    """
    masks = {name: np.asarray(mask, bool).ravel() for name, mask in correct.items()}
    sizes = {mask.size for mask in masks.values()}
    if len(sizes) > 1 or 0 in sizes:
        raise ShapeError(f"models must be judged on the same samples, got {sorted(sizes)} of them")
    matches = [_match(a, masks[a], b, masks[b]) for a, b in combinations(masks, 2)]
    kept = [match for match in matches if match.coverage >= min_coverage]
    return sorted(kept, key=lambda m: (-m.coverage, m.overlap, m.first, m.second))


def _match(a: str, right_a: NDArray[np.bool_], b: str, right_b: NDArray[np.bool_]) -> Match:
    either, both = (right_a | right_b).mean(), (right_a & right_b).mean()
    return Match(first=a, second=b, coverage=float(either), overlap=float(both))


def majority_vote(votes: Sequence[ArrayLike], weights: Sequence[float] | None = None) -> NDArray[np.int64]:
    """Return the class with most votes for each sample; of equal ones the lowest class id.

    Parameters
    ----------
    votes : class ids of each model, all of one shape
    weights : of each model's vote (None: 1)

    Raises
    ------
    ShapeError
        The models voted on different samples.
    SpecError
        There is no vote, a class id below 0, or not one finite weight from 0 for each model.
    """
    if not votes:
        raise SpecError("there is no vote")
    arrays = [np.asarray(vote) for vote in votes]
    if len({a.shape for a in arrays}) > 1:
        raise ShapeError(f"votes have shapes {', '.join(str(a.shape) for a in arrays)}")
    ids = np.stack(arrays)
    if not np.issubdtype(ids.dtype, np.integer) or (ids.size and ids.min() < 0):
        raise SpecError("votes are class ids, whole numbers from 0")
    given = np.ones(len(arrays)) if weights is None else np.asarray(weights, np.float64)
    if given.shape != (len(arrays),) or not np.isfinite(given).all() or (given < 0).any():
        raise SpecError(f"{len(arrays)} models need as many finite weights from 0, got {weights}")
    classes = int(ids.max(initial=0)) + 1
    counts = np.zeros((classes, *ids.shape[1:]))
    for vote, weight in zip(ids, given, strict=True):
        np.put_along_axis(counts, vote[None], np.take_along_axis(counts, vote[None], 0) + weight, 0)
    return counts.argmax(0)


def similarity(correct_a: ArrayLike, correct_b: ArrayLike) -> float:
    """Return the cosine of two models' masks of right samples: 1 where they are right on the same ones, 0 on none.

    Raises
    ------
    ShapeError
        The masks differ in size.
    """
    a, b = np.asarray(correct_a, bool).ravel(), np.asarray(correct_b, bool).ravel()
    if a.size != b.size:
        raise ShapeError(f"masks of {a.size} and {b.size} samples")
    norm = np.sqrt(float(a.sum()) * float(b.sum()))
    return float((a & b).sum() / norm) if norm else 0.0
