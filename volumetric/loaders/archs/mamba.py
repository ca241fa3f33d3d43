"""Mamba (https://arxiv.org/abs/2312.00752): selective state-space layers and nothing else."""

from __future__ import annotations

from volumetric.layers import Mamba
from volumetric.loaders.hf_config import Config
from volumetric.loaders.mamba_layers import state_space_decoder
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
    """Network and rules of a Mamba configuration."""
    hidden = config.integer("hidden_size")
    rank = None if config.values.get("time_step_rank") == "auto" else config.integer("time_step_rank", -(-hidden // 16))
    mixer = Mamba(
        embed_dim=hidden,
        inner_features=config.integer("intermediate_size", int(config.number("expand", 2.0) * hidden)),
        state_size=config.integer("state_size", 16),
        dt_rank=-(-hidden // 16) if rank is None else rank,
        kernel_size=config.integer("conv_kernel", 4, low=2),
        bias=config.flag("use_bias", False),
        conv_bias=config.flag("use_conv_bias", True),
    )
    return state_space_decoder(config, mixer, tied=True)
