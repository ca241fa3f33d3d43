"""Llama 1 to 3 (arXiv 2302.13971, 2407.21783), and all that calls itself so, such as SmolLM2."""

from __future__ import annotations

from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import pre_norm_decoder


def build(config: Config) -> Blueprint:
    """Network and rules of a Llama configuration."""
    layers = config.layers()
    bias = config.flag("attention_bias", False)
    return pre_norm_decoder(
        config,
        ropes=[read_rope(config, head_dim(config))] * layers,
        windows=[None] * layers,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
    )
