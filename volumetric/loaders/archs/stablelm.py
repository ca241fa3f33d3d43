"""StableLM 2 and 3B (https://huggingface.co/stabilityai): Llama with LayerNorm and a quarter of each head rotated."""

from __future__ import annotations

from typing import Any

from volumetric.layers import LayerNorm
from volumetric.loaders.chain import ByHead, Stored
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import (
    ATTENTION_NAMES,
    NORMS_OF_EACH_HEAD,
    attention_blocks,
    gated_mlp,
    pre_norm_stack,
)


def build(config: Config) -> Blueprint:
    """Network and rules of a StableLM configuration."""
    layers = config.layers()
    norm = LayerNorm(num_features=config.integer("hidden_size"), eps=config.number("layer_norm_eps", 1e-5))
    rotated = config.number("partial_rotary_factor", 0.25)
    rope = read_rope(config.with_values(partial_rotary_factor=rotated), head_dim(config), partial=True)
    windows = read_windows(config, layers, switch=False)
    heads = config.integer("num_attention_heads")
    names: dict[str, Stored] = {
        **ATTENTION_NAMES,
        "q_norm": ByHead("q_layernorm.norms.*", heads),
        "k_norm": ByHead("k_layernorm.norms.*", config.integer("num_key_value_heads", heads)),
    }
    fields: dict[str, Any] = {"qkv_bias": config.flag("use_qkv_bias", False)}
    if config.flag("qk_layernorm", False):
        fields |= {"qk_norm": True, **NORMS_OF_EACH_HEAD, "qk_norm_eps": norm.eps}
    attentions = attention_blocks(config, [rope] * layers, windows, names, **fields)
    feeds = [gated_mlp(config)] * layers
    return pre_norm_stack(config, norm, attentions, feeds, parallel=config.flag("use_parallel_residual", False))
