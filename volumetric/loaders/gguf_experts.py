"""Metadata of GGUF files about mixtures of experts, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.errors import CheckpointError
from volumetric.layers import Gate, Parallel
from volumetric.loaders.hf_config import Config
from volumetric.loaders.source import TensorSource
from volumetric.network import Network

_PLAIN: Final[Mapping[str, tuple[object, ...]]] = {
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
}
"""Keys of other ways to choose and weigh experts → values under which they do nothing."""


def expert_values(given: Config, file: TensorSource, *, gatings: tuple[int, ...] = (0, 1)) -> Mapping[str, Any]:
    """Numbers of experts, of all and of those that a row takes.

    Parameters
    ----------
    gatings : numbers of the ways to weigh experts that mean that of the family

    Raises
    ------
    CheckpointError
        There is not a router with a row for each expert in every layer.
    UnsupportedError
        The file chooses or weighs experts in another way.
    """
    for key, values in {**_PLAIN, "expert_gating_func": gatings}.items():
        given.require(key, *values)
    count, layers = given.integer("expert_count"), given.layers("block_count")
    routers = [entry.shape for name, entry in file.entries.items() if name.endswith(".ffn_gate_inp.weight")]
    if len(routers) != layers or any(shape[:1] != (count,) for shape in routers):
        raise CheckpointError(f"{given.where}: {layers} layers need a router of {count} experts each")
    return {"num_local_experts": count, "num_experts_per_tok": given.integer("expert_used_count")}


def expert_metadata(config: Config, network: Network) -> Mapping[str, Any]:
    """Write what `expert_values` reads, and the width of a dense MLP, which files have though no layer may."""
    gate = _gate(network)
    return {
        "expert_count": np.uint32(gate.out_features),
        "expert_used_count": np.uint32(gate.top_k or gate.out_features),
        "feed_forward_length": np.uint32(config.integer("intermediate_size")),
    }


def small_expert_metadata(config: Config, network: Network) -> Mapping[str, Any]:
    """Write the width of an expert, too, where that of a dense MLP is another one."""
    width = np.uint32(config.integer("moe_intermediate_size"))
    return {**expert_metadata(config, network), "expert_feed_forward_length": width}


def _gate(network: Network) -> Gate:
    """Gate of the first mixture, which stands by itself or beside a shared expert."""
    layers = [spec for spec in network.layers.values() if isinstance(spec, Parallel)]
    every = [*layers, *(branch for spec in layers for branch in spec.branches if isinstance(branch, Parallel))]
    return next(spec.gate for spec in every if spec.gate is not None)
