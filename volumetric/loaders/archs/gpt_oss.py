"""gpt-oss (arXiv 2508.10925): heads with sinks, windows in every second layer, bounded gates in mixtures of experts."""

from __future__ import annotations

from typing import Any, Final

from volumetric.layers import SwiGLU
from volumetric.loaders.chain import InStack, Stored
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.experts import expert_count, mixture
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint, Part
from volumetric.loaders.pre_norm import Block, attention_blocks, pre_norm_stack, rms_norm

ROPE: Final[dict[str, Any]] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
"""Where the configuration does not say."""


def build(config: Config) -> Blueprint:
    """Network and rules of a gpt-oss configuration."""
    config.require("hidden_act", "silu")
    config.require("swiglu_alpha", 1.702)  # that of quick_gelu
    layers, bias = config.layers(), config.flag("attention_bias", True)
    window = config.integer("sliding_window", 128)
    given = config.has("rope_parameters") or config.has("rope_scaling")
    turning = config if given else config.with_values(rope_scaling=ROPE)
    attentions = attention_blocks(
        config,
        [read_rope(turning, head_dim(config), default_base=150_000.0)] * layers,
        read_windows(config.with_values(sliding_window=window), layers, switch=False, full_every=2),
        qkv_bias=bias,
        out_bias=bias,
        sinks=True,
    )
    return pre_norm_stack(config, rms_norm(config, eps=1e-5), attentions, [_experts(config)] * layers)


def _experts(config: Config) -> Block:
    """The mixture; of an expert, rows of the gate and of the other projection alternate."""
    config = config.with_values(num_experts_per_tok=config.integer("num_experts_per_tok", 4))
    count, width, hidden = expert_count(config, 128), config.integer("hidden_size"), config.integer("intermediate_size")
    expert = SwiGLU(
        in_features=width,
        hidden_features=hidden,
        activation="quick_gelu",
        bias=True,
        limit=config.number("swiglu_limit", 7.0),
        up_offset=1.0,
    )
    stored: dict[str, Stored] = {"gate/weight": "router.weight", "gate/bias": "router.bias"}
    for i in range(count):
        start, stop = 2 * hidden * i, 2 * hidden * (i + 1)
        stored[f"{i}/gate"] = InStack("experts.gate_up_proj", Part(start, stop, stack=count, step=2))
        stored[f"{i}/up"] = InStack("experts.gate_up_proj", Part(start + 1, stop, stack=count, step=2))
        stored[f"{i}/down"] = InStack("experts.down_proj", Part(i * width, (i + 1) * width, stack=count))
    return Block(mixture(config, expert, count, bias=True), "mlp", stored)
