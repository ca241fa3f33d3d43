"""What is wrong when training meets a number that is not finite, and which layer made it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import VolumetricError
from volumetric.train.data import ArrayData, Batch


class DivergedError(VolumetricError, ArithmeticError):
    """Training met NaN or an infinity and stopped before any weight was changed by it.

    Attributes
    ----------
    step : number of the update that was not made, from 1, or of the last one made where validation failed
    where : what was not finite first
    checkpoint : the last checkpoint, which holds finite weights, or None if none was written
    in_data : what is not finite in the data themselves, as ``inputs[17, 3] is nan``, or ``""``
    """

    def __init__(self, step: int, where: str, checkpoint: Path | None, in_data: str = "") -> None:
        advice = f"continue from {checkpoint}" if checkpoint else "write checkpoints to be able to go back"
        super().__init__(
            f"step {step}: {in_data or f'{where} is not finite'}",
            hint="leave such samples out, or fill in what is missing"
            if in_data
            else f"{advice}; lower the learning rate or clip gradients",
        )
        self.step, self.where, self.checkpoint, self.in_data = step, where, checkpoint, in_data


def odd_entry(data: ArrayData | Batch, of: str = "") -> str:
    """Tell the first number of inputs, targets or mask that is not finite, and how many there are; ``""`` if none.

    What was given by port is told by its port, and its column there.
    """
    for name, array in data.arrays.items():
        if not _odd(array):
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


def _odd(array: Array) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all())
