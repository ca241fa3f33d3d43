"""Statistics of weights over a run: norms, norms of their changes, and histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.reporting import event_number
from volumetric.network.weight_store import Params
from volumetric.train.precision import master_of

BINS: Final = 32
"""Bins of a histogram."""
MOST_ENTRIES: Final = 1 << 16
"""Entries of an array at most that its histogram counts, evenly spread."""
MOST_ARRAYS: Final = 128
"""Arrays with statistics at most: the largest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStats:
    """Statistics of one array of weights.

    Attributes
    ----------
    key : of the array
    shape : of the array
    norm : square root of the sum of squares
    change : norm of the difference from the previous statistics; None for the first ones
    low, high : range of the histogram: smallest and largest finite entry
    counts : entries in each of 32 bins of equal width; of arrays beyond 65,536 entries an even sample is counted
    odd : number of entries that are not finite
    """

    key: str
    shape: tuple[int, ...]
    norm: float
    change: float | None
    low: float
    high: float
    counts: tuple[int, ...]
    odd: int = 0

    def describe(self) -> dict[str, Any]:
        """Return JSON data; numbers that are not finite become text."""
        numbers = {name: event_number(getattr(self, name)) for name in ("norm", "change", "low", "high")}
        return {"key": self.key, "shape": list(self.shape), **numbers, "counts": list(self.counts), "odd": self.odd}


class WeightStatistics:
    """Computes statistics of weights again and again. It stores a copy of the weights, to tell how much they change."""

    def __init__(self) -> None:
        self._before: dict[str, Array] = {}

    def of(self, params: Params) -> list[WeightStats]:
        """Return the statistics of the largest arrays of floats, in the order of the network."""
        stores = {key: store for key, store in params.items() if np.prod(store.shape, dtype=np.int64) > 0}
        largest = sorted(stores, key=lambda key: -int(np.prod(stores[key].shape, dtype=np.int64)))[:MOST_ARRAYS]
        now = {key: master_of(stores[key]) for key in stores if key in set(largest)}
        before, self._before = self._before, {key: np.array(w) for key, w in now.items()}
        return [_stats(key, w, before.get(key)) for key, w in now.items()]


def _stats(key: str, w: Array, before: Array | None) -> WeightStats:
    flat = w.reshape(-1)
    sample = flat[:: -(-flat.size // MOST_ENTRIES)]
    finite = np.isfinite(sample)
    sample = sample if finite.all() else sample[finite]
    low, high = (float(sample.min()), float(sample.max())) if sample.size else (0.0, 0.0)
    places = np.zeros(sample.size, np.intp)
    if high > low:
        share = (sample.astype(np.float64) - low) / (high - low)
        places = np.minimum((share * BINS).astype(np.intp), BINS - 1)
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.dot(flat, flat)))
        change = None if before is None else float(np.linalg.norm(flat - before.reshape(-1)))
    return WeightStats(
        key=key,
        shape=tuple(w.shape),
        norm=norm,
        change=change,
        low=low,
        high=high,
        counts=tuple(np.bincount(places, minlength=BINS).tolist()),
        odd=int(finite.size - finite.sum()),
    )
