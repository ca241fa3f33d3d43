"""StableLM 2 and 3B (https://huggingface.co/stabilityai): Llama with LayerNorm and a quarter of each head rotated."""

from __future__ import annotations

from volumetric.layers import LayerNorm
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import attention_blocks, gated_mlp, pre_norm_stack


def build(config: Config) -> Blueprint:
    """Network and rules of a StableLM configuration."""
    config.require("qk_layernorm", False)
    layers = config.layers()
    norm = LayerNorm(num_features=config.integer("hidden_size"), eps=config.number("layer_norm_eps", 1e-5))
    rotated = config.number("partial_rotary_factor", 0.25)
    rope = read_rope(config.with_values(partial_rotary_factor=rotated), head_dim(config))
    windows = read_windows(config, layers, switch=False)
    attentions = attention_blocks(config, [rope] * layers, windows, qkv_bias=config.flag("use_qkv_bias", False))
    feeds = [gated_mlp(config)] * layers
    return pre_norm_stack(config, norm, attentions, feeds, parallel=config.flag("use_parallel_residual", False))
