"""The largest elements of the last axis."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array


def keep_largest(logits: Array, count: int) -> Array:
    """Return `logits` with all but the `count` largest of the last axis at -inf; NaN stays and is not counted."""
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :count]
    mask = np.isnan(logits)
    np.put_along_axis(mask, order, True, axis=-1)
    return np.where(mask, logits, logits.dtype.type(-np.inf))
