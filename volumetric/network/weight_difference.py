"""How far converted weights are from the originals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.base.notebook_html import ShowsFields

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MorphReport(ShowsFields):
    """The error of converted values relative to the originals, after dequantisation.

    Attributes
    ----------
    nmse : mean squared error over mean square
    cosine : cosine of the angle between the two
    max_abs : largest absolute difference
    """

    nmse: float
    cosine: float
    max_abs: float

    @classmethod
    def between(cls, before: NDArray[np.float32], after: NDArray[np.float32]) -> MorphReport:
        """Compare two arrays of one shape; two zero arrays are equal."""
        return WeightDifference.between(before, after).report()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightDifference:
    """Sums over original values a and converted values b; sums of several tensors can be added.

    Attributes
    ----------
    elements : number of elements
    power, other, dot, error : sums of a², b², a b and (a − b)²
    max_abs : largest ``|a − b|``
    """

    elements: int = 0
    power: float = 0.0
    other: float = 0.0
    dot: float = 0.0
    error: float = 0.0
    max_abs: float = 0.0

    @classmethod
    def between(cls, before: NDArray[np.float32], after: NDArray[np.float32]) -> WeightDifference:
        """Compare two arrays of one shape, in float64."""
        total = cls()
        before, after = before.ravel(), after.ravel()
        for at in range(0, before.size, _PIECE):  # in chunks: float64 copies of a whole embedding are large
            total += cls._of_arrays(*(x[at : at + _PIECE].astype(np.float64) for x in (before, after)))
        return total

    @classmethod
    def _of_arrays(cls, a: NDArray[np.float64], b: NDArray[np.float64]) -> WeightDifference:
        with np.errstate(invalid="ignore"):  # the difference of equal infinities is NaN
            d = a - b
        top = float(np.abs(d).max(initial=0.0))
        return cls(
            elements=a.size, power=float(a @ a), other=float(b @ b), dot=float(a @ b), error=float(d @ d), max_abs=top
        )

    def __add__(self, other: WeightDifference) -> WeightDifference:
        return WeightDifference(
            elements=self.elements + other.elements,
            power=self.power + other.power,
            other=self.other + other.other,
            dot=self.dot + other.dot,
            error=self.error + other.error,
            max_abs=float(np.maximum(self.max_abs, other.max_abs)),  # unlike max, it propagates NaN
        )

    def report(self) -> MorphReport:
        """Return the error; all-zero tensors are equal."""
        norm = math.sqrt(self.power * self.other)
        return MorphReport(
            nmse=self.error / self.power if self.power else float(self.error > 0),
            cosine=self.dot / norm if norm else float(self.power == self.other),
            max_abs=self.max_abs,
        )
