"""Clipping gradients by their norm over all parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from volumetric.base._typing import Array

_MARGIN = 1e-6  # torch's: the clipped norm stays a little below the limit


def global_norm(gradients: Mapping[str, Array]) -> float:
    """Return ``√Σ g²`` over all elements, summed in float64 so that no square overflows."""
    total = 0.0
    for g in gradients.values():
        flat = g.ravel().astype(np.float64, copy=False)
        total += float(flat @ flat)
    return math.sqrt(total)


def clip_by_norm(gradients: Mapping[str, Array], norm: float, limit: float) -> dict[str, Array]:
    """Scale gradients whose global norm is `norm` by ``min(1, limit / (norm + 1e-6))``.

    Pascanu et al. 2013 (arXiv 1211.5063).
    """
    factor = limit / (norm + _MARGIN)
    return dict(gradients) if factor >= 1 else {key: g * factor for key, g in gradients.items()}
