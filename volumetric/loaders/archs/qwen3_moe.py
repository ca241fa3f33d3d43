"""Qwen3 MoE (arXiv 2505.09388): Qwen3 with a mixture of many small experts in most layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.loaders.expert_layers import expert_count, experts, mixture_layers, scoring_of
from volumetric.loaders.gguf_family import (
    ATTENTION,
    EXPERTS,
    HEAD_NORMS,
    PRE_NORMS,
    GGUFFamily,
    expert_values,
    small_expert_metadata,
)
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import attention_blocks, gated_mlp, pre_norm_stack, rms_norm
from volumetric.loaders.tensor_source import TensorSource


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Qwen3 MoE configuration."""
    layers, bias, norm = config.layers(), config.flag("attention_bias", False), rms_norm(config)
    width = config.integer("head_dim", 128)
    chosen = config.integer("num_experts_per_tok", 8)
    config = config.with_values(head_dim=width, num_experts_per_tok=chosen)
    attentions = attention_blocks(
        config,
        [read_rope(config, width)] * layers,
        read_windows(config, layers, switch=True),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
        qk_norm_eps=norm.eps,
    )
    hidden = config.integer("moe_intermediate_size")
    mixture = experts(config, count=expert_count(config, 128), hidden=hidden, scoring=scoring_of(config))
    feeds = mixture_layers(config, mixture, gated_mlp(config))
    return pre_norm_stack(config, norm, attentions, feeds)


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    values = expert_values(metadata, file)
    share = metadata.integer("feed_forward_length") // values["num_experts_per_tok"]
    hidden = metadata.integer("expert_feed_forward_length", share)
    return {**values, "moe_intermediate_size": hidden, "norm_topk_prob": True}


UNSEEN = ("norm_topk_prob",)
GGUF = GGUFFamily(
    architecture="qwen3moe",
    model_type="qwen3_moe",
    auto_class="Qwen3MoeForCausalLM",
    inner={**PRE_NORMS, **ATTENTION, **HEAD_NORMS, **EXPERTS},
    values=_read_gguf,
    metadata=small_expert_metadata,
)
