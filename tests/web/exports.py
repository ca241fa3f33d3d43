"""What exported networks compute, against what the reference device does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def greatest_error(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest expected number."""
    expected = np.asarray(expected, np.float64).reshape(-1)
    return float(np.abs(got.reshape(-1) - expected).max() / max(np.abs(expected).max(), 1e-30))
