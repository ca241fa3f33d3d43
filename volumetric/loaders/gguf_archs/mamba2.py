"""Mamba-2: state-space layers with one decay a head, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from volumetric.layers import Mamba2
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_archs import mamba
from volumetric.loaders.gguf_states import expansion, read_sizes, size_metadata, without_attention
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del file
    sizes = read_sizes(given)
    return {
        "expand": expansion(sizes.channels, given.integer("embedding_length")),
        "num_heads": sizes.heads,
        "head_dim": sizes.channels // sizes.heads,
        "state_size": sizes.state,
        "n_groups": sizes.groups,
        "conv_kernel": sizes.taps,
        "use_bias": False,
        "use_conv_bias": True,
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    mixer = next(spec for spec in network.layers.values() if isinstance(spec, Mamba2))
    return {**without_attention(), **size_metadata(mixer)}


FAMILY = replace(mamba.FAMILY, model_type="mamba2", auto_class="Mamba2ForCausalLM", values=_values, metadata=_metadata)
