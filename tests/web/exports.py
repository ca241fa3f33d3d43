"""Networks exported for a test, and what the reference device computes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.web.export_network import export_network

PLAIN = ("plain",)


def export(source: Any, folder: Path, **options: Any) -> None:
    """Export the variant that runs in every browser into a new folder."""
    export_network(source, folder, variants=PLAIN, **options)


def greatest_error(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest expected number."""
    expected = np.asarray(expected, np.float64).reshape(-1)
    return float(np.abs(got.reshape(-1) - expected).max() / max(np.abs(expected).max(), 1e-30))
