"""In NumPy: one number for each channel of ``[N, C, …]``: gains and biases of norms, and sums over."""

from __future__ import annotations

from volumetric.base._typing import Array


def by_channel(vector: Array, axes: int) -> Array:
    """View one number for each channel so that it broadcasts over an array ``[N, C, …]`` of `axes` axes."""
    return vector.reshape(-1, *(1,) * (axes - 2))


def sum_by_channel(x: Array) -> Array:
    """Sum over all axes but the channels, ``[N, C, …] -> [C]``."""
    return x.sum((0, *range(2, x.ndim)))
