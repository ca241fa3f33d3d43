"""Parameters and state of a short causal convolution of each channel over the rows of a sequence."""

from __future__ import annotations

from volumetric.graph.state import StateSpec
from volumetric.layers.base import ParamSpec

PAST = "past"
"""State that holds the last rows before a call."""


def conv_state(channels: int, taps: int) -> StateSpec:
    """The rows before a call that its first rows see."""
    return StateSpec(name=PAST, shape=(taps - 1, channels), kind="fixed")


def conv_params(prefix: str, channels: int, taps: int, *, bias: bool) -> tuple[ParamSpec, ...]:
    """Parameters ``{prefix}weight [channels, 1, taps]``, as torch's Conv1d by channel, and ``{prefix}bias``."""
    weight = ParamSpec(name=f"{prefix}weight", shape=(channels, 1, taps), packable=False)
    own = ParamSpec(name=f"{prefix}bias", shape=(channels,), init="zeros", packable=False)
    return (weight, own) if bias else (weight,)
