"""Phi-3 (arXiv 2404.14219): Llama with fused projections, q, k and v in one tensor, gate and up in another."""

from __future__ import annotations

from volumetric.loaders.chain import Fused
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint, Part
from volumetric.loaders.pre_norm import pre_norm_decoder


def build(config: Config) -> Blueprint:
    """Network and rules of a Phi-3 configuration."""
    layers, width, heads = config.layers(), head_dim(config), config.integer("num_attention_heads")
    q, kv = heads * width, config.integer("num_key_value_heads", heads) * width
    hidden = config.integer("intermediate_size")
    return pre_norm_decoder(
        config,
        ropes=[read_rope(config, width, partial=True)] * layers,
        windows=read_windows(config, layers, switch=False),
        attention_names={
            "q": Fused("qkv_proj", Part(0, q)),
            "k": Fused("qkv_proj", Part(q, q + kv)),
            "v": Fused("qkv_proj", Part(q + kv, q + 2 * kv)),
            "o": "o_proj",
        },
        mlp_names={
            "gate": Fused("gate_up_proj", Part(0, hidden)),
            "up": Fused("gate_up_proj", Part(hidden, 2 * hidden)),
            "down": "down_proj",
        },
    )
