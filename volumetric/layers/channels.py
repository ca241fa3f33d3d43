"""One number for each channel of ``[N, C, …]``: gains and biases of norms, and sums over everything else."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.layers.base import ParamSpec


def channel_params(channels: int) -> tuple[ParamSpec, ParamSpec]:
    """Gain and bias of each channel."""
    return (
        ParamSpec(name="weight", shape=(channels,), init="ones", packable=False),
        ParamSpec(name="bias", shape=(channels,), init="zeros", packable=False),
    )


def by_channel(vector: Array, axes: int) -> Array:
    """View one number for each channel so that it broadcasts over an array ``[N, C, …]`` of `axes` axes."""
    return vector.reshape(-1, *(1,) * (axes - 2))


def sum_by_channel(x: Array) -> Array:
    """Sum over all axes but the channels, ``[N, C, …] -> [C]``."""
    return x.sum((0, *range(2, x.ndim)))
