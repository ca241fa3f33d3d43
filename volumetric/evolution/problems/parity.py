"""Parity of n bits: 1 if an odd number of inputs is 1."""

from __future__ import annotations

import numpy as np

from volumetric.errors import SpecError
from volumetric.evolution.problems.table import Table


def parity(bits: int) -> Table:
    """Return the problem with all 2ⁿ rows, solved at 97.5 % of the points.

    Raises
    ------
    SpecError : `bits` is not 2 to 16
    """
    if not 2 <= bits <= 16:
        raise SpecError(f"parity takes 2 to 16 bits, got {bits}")
    rows = np.arange(1 << bits)
    inputs = (rows[:, None] >> np.arange(bits)) & 1
    targets = inputs.sum(axis=1, keepdims=True) % 2
    return Table.of(inputs, targets, goal=0.975 * len(rows))
