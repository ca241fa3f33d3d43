"""Curves over steps, in bounded memory: neighbouring points become one bucket with their minimum, maximum and mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array

CAPACITY: Final = 4096
"""Buckets of curves at most; beyond it, every two become one."""
MOST_NAMES: Final = 256
"""Curves over the same steps at most; further ones are left out."""
_PENDING: Final = 8192
_PARTS: Final = 64
_AXES: Final = ("step", "epoch", "seconds")


class StepCurves:
    """Numbers by name at the same steps. A bucket has the axes of its last point.

    Parameters
    ----------
    capacity : buckets at most, even
    names : different names at most

    Attributes
    ----------
    stride : points in a bucket
    left_out : names beyond those that are stored
    """

    def __init__(self, capacity: int = CAPACITY, names: int = MOST_NAMES) -> None:
        self.stride: int = 1
        self.left_out: set[str] = set()
        self._capacity, self._most_names = capacity, names
        self._axes: list[tuple[float, float, float]] = []
        self._rows: list[Mapping[str, float]] = []
        self._waiting: list[Buckets] = []
        self._known: dict[str, None] = {}
        self._buckets: Buckets = Buckets.empty()

    def __len__(self) -> int:
        return len(self._buckets) + len(self._rows) + sum(map(len, self._waiting))

    @property
    def names(self) -> list[str]:
        """Names of the curves."""
        return list(self._known)

    def append(self, axes: tuple[float, float, float], row: Mapping[str, float]) -> None:
        """Append a point: step, epoch and seconds, and a number for each name."""
        for name in row:
            if name not in self._known:
                if len(self._known) < self._most_names:
                    self._known[name] = None
                else:
                    self.left_out.add(name)
        self._axes.append(axes)
        self._rows.append(row)
        if len(self._rows) >= _PENDING:
            self._settle()

    def extend(self, points: Buckets) -> None:
        """Append points of one step each."""
        self._gather()
        for name in [name for name in points.values if name not in self._known]:
            self._known[name] = None
        self._waiting.append(points)
        if len(self._waiting) >= _PARTS:
            self._settle()

    def clear_after(self, step: float) -> None:
        """Remove points after a step, which a resumed run repeats."""
        self._settle()
        everything = Buckets.concatenated([self._buckets, *self._waiting])
        self._waiting = []
        self._buckets = everything.part(0, int(np.searchsorted(everything.axes[0], step, "right")))

    def buckets(self, most: int | None = None) -> Buckets:
        """Return all points so far, in at most `most` buckets."""
        self._settle()
        rest = Buckets.concatenated(self._waiting)
        everything = Buckets.concatenated([self._buckets, rest.merged(max(1, len(rest)))])
        while most is not None and len(everything) > max(2, most):
            everything = everything.merged(2)
        return everything

    def _gather(self) -> None:
        """Move rows to the points that wait."""
        if self._rows:
            self._waiting.append(Buckets.of_rows(self._axes, self._rows, self._known))
            self._axes, self._rows = [], []

    def _settle(self) -> None:
        """Move whole buckets out of the points that wait."""
        self._gather()
        rest = Buckets.concatenated(self._waiting)
        parts = [self._buckets]
        stored = len(self._buckets)
        while len(rest) >= self.stride:
            if stored >= self._capacity:
                parts = [Buckets.concatenated(parts).merged(2)]
                stored = len(parts[0])
                self.stride *= 2
                continue
            count = min(len(rest) // self.stride, self._capacity - stored)
            parts.append(rest.part(0, count * self.stride).merged(self.stride))
            stored += count
            rest = rest.part(count * self.stride, len(rest))
        if len(parts) > 1 or parts[0] is not self._buckets:
            self._buckets = Buckets.concatenated(parts)
        self._waiting = [rest] if len(rest) else []


class Buckets:
    """Points, each of one or more steps.

    Attributes
    ----------
    axes : step, epoch and seconds ``[3, buckets]``
    counts : points in each ``[buckets]``
    values : name → minimum, maximum and mean of finite numbers ``[3, buckets]``; NaN where there are none
    """

    def __init__(self, axes: Array, counts: Array, values: dict[str, Array]) -> None:
        self.axes: Array = axes
        self.counts: Array = counts
        self.values: dict[str, Array] = values

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def empty(cls) -> Buckets:
        """Return no points."""
        return cls(np.zeros((3, 0)), np.zeros(0, np.int64), {})

    @classmethod
    def of_rows(
        cls, axes: Sequence[tuple[float, float, float]], rows: Sequence[Mapping[str, float]], names: Mapping[str, Any]
    ) -> Buckets:
        """Return points as buckets of one step each; numbers that are not finite become NaN."""
        if not rows:
            return cls.empty()
        columns = {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names}
        return cls.of_columns(np.array(axes, np.float64).T.reshape(3, -1), columns)

    @classmethod
    def concatenated(cls, parts: Sequence[Buckets]) -> Buckets:
        """Return the points of all parts in order."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls.empty()
        names = dict.fromkeys(name for part in parts for name in part.values)
        values = {
            name: np.concatenate(
                [part.values[name] if name in part.values else np.full((3, len(part)), np.nan) for part in parts], 1
            )
            for name in names
        }
        axes = np.concatenate([part.axes for part in parts], 1)
        return cls(axes, np.concatenate([part.counts for part in parts]), values)

    @classmethod
    def of_columns(cls, axes: Array, columns: Mapping[str, Array]) -> Buckets:
        """Return points as buckets of one step each; numbers that are not finite become NaN."""
        values = {name: np.stack([np.where(np.isfinite(of), of, np.nan)] * 3) for name, of in columns.items()}
        return cls(axes, np.ones(axes.shape[1], np.int64), values)

    def part(self, start: int, stop: int) -> Buckets:
        """Return the buckets from `start` up to `stop`."""
        values = {name: of[:, start:stop] for name, of in self.values.items()}
        return Buckets(self.axes[:, start:stop], self.counts[start:stop], values)

    def merged(self, every: int) -> Buckets:
        """Return buckets of `every` neighbours each; the last one may have fewer."""
        if every == 1 or len(self) < 2:
            return self
        starts = np.arange(0, len(self), every)
        ends = np.minimum(starts + every, len(self)) - 1
        values = {}
        for name, (low, high, mean) in self.values.items():
            known = np.isfinite(mean)
            weight = np.add.reduceat(np.where(known, self.counts, 0), starts)
            total = np.add.reduceat(np.where(known, mean * self.counts, 0.0), starts)
            with np.errstate(invalid="ignore", divide="ignore"):
                means = np.where(weight > 0, total / weight, np.nan)
            values[name] = np.stack([np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts), means])
        return Buckets(self.axes[:, ends], np.add.reduceat(self.counts, starts), values)

    def tables(self) -> dict[str, Any]:
        """Return the arrays of a page: minimum and maximum only where a bucket has several points."""
        single = not len(self) or int(self.counts.max()) == 1
        data: dict[str, Any] = {name: self.axes[i].astype(np.float32) for i, name in enumerate(_AXES)}
        data["step"] = self.axes[0].astype(np.float64 if len(self) and self.axes[0].max() > 1 << 24 else np.float32)
        data["count"] = None if single else self.counts.astype(np.uint32)
        with np.errstate(over="ignore"):
            data["values"] = {
                name: {"mean": of[2].astype(np.float32)}
                | ({} if single else {"low": of[0].astype(np.float32), "high": of[1].astype(np.float32)})
                for name, of in self.values.items()
            }
        return data
