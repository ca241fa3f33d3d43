"""Parameters with one value for each channel of ``[N, C, …]``: gains and biases of norms."""

from __future__ import annotations

from volumetric.layers.layer_spec import ParamSpec


def channel_params(channels: int) -> tuple[ParamSpec, ParamSpec]:
    """Return gain and bias of each channel."""
    return (
        ParamSpec(name="weight", shape=(channels,), init="ones", packable=False),
        ParamSpec(name="bias", shape=(channels,), init="zeros", packable=False),
    )
