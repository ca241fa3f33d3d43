"""Sizes of state-space layers in GGUF files, and the names of their tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.layers import Mamba2
from volumetric.loaders.hf_config import Config

MIXER: Final[Mapping[str, str]] = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
    "dt": "ssm_dt",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}
"""Name of a tensor in a state-space layer → name in a block; ``dt`` is the bias of Mamba-2's steps."""
BARE: Final = frozenset({"ssm_a", "ssm_d"})
SINGLES: Final = frozenset({"ssm_a", "ssm_d", "ssm_conv1d.weight"})
"""Tensors that llama.cpp's operations read as float32."""
BIASES: Final = frozenset({"ssm_conv1d", "ssm_dt"})


class StateSpaceSizes(NamedTuple):
    """Sizes of a Mamba-2 layer."""

    channels: int
    heads: int
    state: int
    groups: int
    taps: int


def read_sizes(metadata: Config) -> StateSpaceSizes:
    """Sizes of Mamba-2 layers in metadata, where the number of heads is called a rank. Raises `CheckpointError`."""
    sizes = StateSpaceSizes(
        channels=metadata.integer("ssm.inner_size"),
        heads=metadata.integer("ssm.time_step_rank"),
        state=metadata.integer("ssm.state_size"),
        groups=metadata.integer("ssm.group_count"),
        taps=metadata.integer("ssm.conv_kernel", low=2),
    )
    if sizes.channels % sizes.heads:
        raise CheckpointError(f"{metadata.where}: {sizes.channels} channels cannot be divided into {sizes.heads} heads")
    return sizes


def size_metadata(spec: Mamba2) -> dict[str, Any]:
    """Inverse of `read_sizes`."""
    return {
        "ssm.inner_size": np.uint32(spec.inner),
        "ssm.time_step_rank": np.uint32(spec.num_heads),
        "ssm.state_size": np.uint32(spec.state_size),
        "ssm.group_count": np.uint32(spec.groups),
        "ssm.conv_kernel": np.uint32(spec.kernel_size),
    }


def without_attention() -> dict[str, Any]:
    """Keys that llama.cpp requires for every model, for one without attention."""
    return {"attention.head_count": np.uint32(0), "feed_forward_length": np.uint32(0)}


def expansion(channels: int, hidden: int) -> float:
    """Factor of `hidden` that gives so many channels, after rounding down."""
    factor = channels / hidden
    return factor if int(factor * hidden) == channels else math.nextafter(factor, math.inf)
