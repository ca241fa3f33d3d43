"""Qwen1.5 and Qwen2 MoE (arXiv 2407.10671): Qwen2 with a mixture of experts, beside one expert that all rows take."""

from __future__ import annotations

from volumetric.loaders.decoder import head_dim
from volumetric.loaders.experts import expert_count, experts, mixture_layers, scoring_of, with_shared_expert
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import attention_blocks, gated_mlp, pre_norm_stack, rms_norm


def build(config: Config) -> Blueprint:
    """Network and rules of a Qwen2 MoE configuration."""
    layers, bias = config.layers(), config.flag("qkv_bias", True)
    ropes = [read_rope(config, head_dim(config))] * layers
    attentions = attention_blocks(config, ropes, _windows(config, layers), qkv_bias=bias)
    config = config.with_values(num_experts_per_tok=config.integer("num_experts_per_tok", 4))
    hidden = config.integer("moe_intermediate_size")
    mixture = experts(config, count=expert_count(config, 60), hidden=hidden, scoring=scoring_of(config))
    mixture = with_shared_expert(config, mixture, hidden=config.integer("shared_expert_intermediate_size"))
    return pre_norm_stack(config, rms_norm(config), attentions, mixture_layers(config, mixture, gated_mlp(config)))


def _windows(config: Config, layers: int) -> list[int | None]:
    """Windows; without a list they are in every second layer, up to one that other Qwens start them at."""
    windows = read_windows(config, layers, switch=True, full_every=2)
    if config.has("layer_types"):
        return windows
    end = config.integer("max_window_layers", 28, low=0)
    return [window if i < end else None for i, window in enumerate(windows)]
