"""Networks exported for a test, and what the reference device computes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.web.export_network import export_network

PLAIN = ("plain",)
"""The variant that runs in every browser."""
SOFTWARE = ("software",)
"""The same with kernels that a software adapter compiles in a fraction of the time."""


def export(source: Any, folder: Path, *, variants: tuple[str, ...] = SOFTWARE, **options: Any) -> None:
    """Export one variant into a new folder."""
    export_network(source, folder, variants=variants, **options)


def greatest_error(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest expected number."""
    expected = np.asarray(expected, np.float64).reshape(-1)
    return float(np.abs(got.reshape(-1) - expected).max() / max(np.abs(expected).max(), 1e-30))
