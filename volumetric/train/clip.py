"""Clipping gradients by their norm over all parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from volumetric._typing import Array

_MARGIN = 1e-6  # torch's: the clipped norm stays a little below the limit


def global_norm(gradients: Mapping[str, Array]) -> float:
    """Return ``√Σ g²`` over all elements, summed in float64 so that no square overflows."""
    total = 0.0
    for g in gradients.values():
        flat = g.ravel().astype(np.float64, copy=False)
        total += float(flat @ flat)
    return math.sqrt(total)


def clip_by_global_norm(gradients: Mapping[str, Array], limit: float) -> tuple[dict[str, Array], float]:
    """Scale all gradients by ``min(1, limit / (norm + 1e-6))``; return them and the norm that they had.

    Pascanu et al. 2013 (arXiv 1211.5063).
    """
    norm = global_norm(gradients)
    factor = limit / (norm + _MARGIN)
    if factor >= 1:
        return dict(gradients), norm
    return {key: g * factor for key, g in gradients.items()}, norm
