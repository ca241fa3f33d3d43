"""Mamba-2 (https://arxiv.org/abs/2405.21060): state-space layers with one decay a head."""

from __future__ import annotations

from volumetric.errors import CheckpointError
from volumetric.layers import Mamba2
from volumetric.loaders.hf_config import Config
from volumetric.loaders.mamba_layers import state_space_decoder, step_bounds
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
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
