"""Calls of several sequences, for the tests of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from volumetric.runtime.device import Executable, Piece


def one_row_each(executable: Executable, states: Sequence[Any], x: np.ndarray) -> np.ndarray:
    """Append a row of `x` to each of `states` in one call; the outputs, row by row."""
    pieces = [Piece(state, x[i : i + 1]) for i, state in enumerate(states)]
    return np.concatenate(executable.run(pieces))
