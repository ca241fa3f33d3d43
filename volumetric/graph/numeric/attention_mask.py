"""The parts of attention that are not products: which rows see which, and temperatures by position."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array


def temperature(positions: Array, scale: float, every: int) -> Array:
    """Return factors of queries by position, float64; see `MultiHeadAttention`."""
    return 1 + scale * np.log1p((positions + 1) // every)


def attention_mask(rows: Array, others: Array, *, causal: bool, window: int | None, chunk: int | None) -> Array:
    """Return whether each of `rows` sees each of `others`, bool ``[..., T, S]``.

    Parameters
    ----------
    rows : positions, ``[..., T]``
    others : positions, ``[S]``, or ``[..., T, S]`` if they differ for each row
    """
    distance = rows[..., None] - others
    mask = distance >= 0 if causal else np.ones_like(distance, bool)
    if window is not None:
        mask &= np.abs(distance) < window
    return mask if chunk is None else mask & (rows[..., None] // chunk == others // chunk)
