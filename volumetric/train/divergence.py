"""The error for a non-finite number in training, with the layer that produced it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import VolumetricError
from volumetric.train.data import ArrayData, Batch

_LARGE: Final = 100.0
"""Numbers above this are named as a cause."""


class DivergedError(VolumetricError, ArithmeticError):
    """Training stopped at NaN or infinity, before it changed any weight.

    Attributes
    ----------
    step : number, from 1, of the update that failed; if validation failed, of the last update
    where : name of the first non-finite value
    checkpoint : the last checkpoint, which holds finite weights, or None if none was written
    in_data : the non-finite value in the data, as ``inputs[17, 3] is nan``, or ``""``
    rate : learning rate of the settings; 0: unknown
    largest : largest absolute value of the batch
    halves : whether products were in float16
    """

    def __init__(
        self,
        step: int,
        where: str,
        checkpoint: Path | None,
        in_data: str = "",
        *,
        rate: float = 0.0,
        largest: float = 0.0,
        halves: bool = False,
    ) -> None:
        causes = [f"the learning rate is {rate:g}"] if rate else []
        advice = [
            f"lower the learning rate, as lr={rate / 10:g}" if rate else "lower the learning rate",
            "clip=1.0 limits gradients",
        ]
        if halves:
            causes.append("products are in float16, up to 65504")
            advice[:0] = ['compute="float32" has no such limit']
        if largest > _LARGE:
            causes.append(f"the data have numbers up to {largest:.3g}")
            advice[:0] = ["scale inputs and targets to about 1 (standardise = true, or (x - x.mean(0)) / x.std(0))"]
        if checkpoint:
            advice.append(f"continue from {checkpoint}")
        what = in_data or f"{where} is not finite{': ' if causes else ''}{', '.join(causes)}"
        super().__init__(
            f"step {step}: {what}",
            hint="remove these samples, or fill in the missing values" if in_data else "; ".join(advice),
        )
        self.step: int = step
        self.where: str = where
        self.checkpoint: Path | None = checkpoint
        self.in_data: str = in_data


def odd_entry(data: ArrayData | Batch, of: str = "") -> str:
    """Describe the first non-finite number of inputs, targets or mask, and how many there are; ``""`` if none.

    For data by port the description names the port and the column within it.
    """
    for name, array in data.arrays.items():
        if not _not_finite(array):
            continue
        wrong = np.argwhere(~np.isfinite(array))
        more = f", and {len(wrong) - 1:,} more are not finite" if len(wrong) > 1 else ""
        *row, column = wrong[0].tolist()
        port, (first, _) = next(
            (of for of in data.ports.get(name, {}).items() if of[1][0] <= column < of[1][1]), ("", (0, 0))
        )
        named = f"{name}.{port}" if port else name
        return f"{of}{named}{[*row, column - first]} is {array[tuple(wrong[0])]}{more}"
    return ""


def largest_entry(data: ArrayData | Batch) -> float:
    """Return the largest absolute value of inputs, targets and mask that are numbers with a point."""
    floats = (array for array in data.arrays.values() if np.issubdtype(array.dtype, np.floating) and array.size)
    return max((float(np.abs(array).max()) for array in floats), default=0.0)


def _not_finite(array: Array) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all())
