"""Mamba-2 (https://arxiv.org/abs/2405.21060): state-space layers with one decay for each head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from volumetric.base.errors import CheckpointError
from volumetric.layers import Mamba2
from volumetric.loaders.archs import mamba
from volumetric.loaders.archs.mamba import state_space_decoder, step_bounds
from volumetric.loaders.gguf_states import expansion, read_sizes, size_metadata, without_attention
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Mamba-2 configuration."""
    hidden, heads, width = (
        config.integer("hidden_size"),
        config.integer("num_heads", 128),
        config.integer("head_dim", 64),
    )
    inner = int(config.number("expand", 2.0) * hidden)
    if inner != heads * width:
        raise CheckpointError(f"{config.where}: {heads} heads of {width} are not expand x hidden_size = {inner}")
    low, high = step_bounds(config)
    mixer = Mamba2(
        embed_dim=hidden,
        num_heads=heads,
        head_dim=width,
        state_size=config.integer("state_size", 128),
        groups=config.integer("n_groups", 8),
        kernel_size=config.integer("conv_kernel", 4, low=2),
        bias=config.flag("use_bias", False),
        out_bias=config.flag("use_bias", False),
        conv_bias=config.flag("use_conv_bias", True),
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        dt_min=low,
        dt_max=high,
    )
    return state_space_decoder(config, mixer, tied=False)


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    sizes = read_sizes(metadata)
    return {
        "expand": expansion(sizes.channels, metadata.integer("embedding_length")),
        "num_heads": sizes.heads,
        "head_dim": sizes.channels // sizes.heads,
        "state_size": sizes.state,
        "n_groups": sizes.groups,
        "conv_kernel": sizes.taps,
        "use_bias": False,
        "use_conv_bias": True,
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    mixer = next(spec for spec in network.layers.values() if isinstance(spec, Mamba2))
    return {**without_attention(), **size_metadata(mixer)}


GGUF = replace(
    mamba.GGUF,
    architecture="mamba2",
    model_type="mamba2",
    auto_class="Mamba2ForCausalLM",
    values=_read_gguf,
    metadata=_write_gguf,
)
