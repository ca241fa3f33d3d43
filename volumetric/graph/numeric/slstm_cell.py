"""The cell of an sLSTM: exponential gates over a running maximum (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.formula.cells import EPS
from volumetric.graph.numeric.cells import CELLS

__all__ = ["CELL", "EPS", "log_sigmoid"]

CELL = CELLS["slstm"]
"""One step from pre-activations, gates i, f, z, o side by side."""


def log_sigmoid(x: Array) -> Array:
    """``log σ(x)``, which neither overflows nor loses small values."""
    return -np.logaddexp(x.dtype.type(0), -x)
