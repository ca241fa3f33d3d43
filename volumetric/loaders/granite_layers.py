"""Layers of Granite, dense or mixtures: Llama's, with four factors."""

from __future__ import annotations

from volumetric.errors import CheckpointError
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import Block, attention_blocks, pre_norm_stack, rms_norm


def granite_decoder(config: Config, feed: Block) -> Blueprint:
    """Build a Granite decoder; `feed` is the second block of each layer."""
    layers, bias = config.layers(), config.flag("attention_bias", False)
    divisor = config.number("logits_scaling", 1.0)
    if divisor == 0:
        raise CheckpointError(f"{config.where}: logits_scaling is 0, and logits are divided by it")
    attentions = attention_blocks(
        config,
        [read_rope(config, head_dim(config))] * layers,
        [None] * layers,
        qkv_bias=bias,
        out_bias=bias,
        scale=config.number("attention_multiplier", 1.0),
    )
    return pre_norm_stack(
        config,
        rms_norm(config),
        attentions,
        [feed] * layers,
        residual_scale=config.number("residual_multiplier", 1.0),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        logit_scale=1 / divisor,
    )
