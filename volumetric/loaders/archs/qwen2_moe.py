"""Qwen1.5 and Qwen2 MoE (arXiv 2407.10671): Qwen2 with a mixture of experts and one shared expert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.archs.qwen3_moe import GGUF as QWEN3
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.expert_layers import expert_count, experts, mixture_layers, scoring_of, with_shared_expert
from volumetric.loaders.gguf_family import ATTENTION, EXPERTS, PRE_NORMS, GGUFFamily, small_expert_metadata
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import attention_blocks, gated_mlp, pre_norm_stack, rms_norm
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
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
    """Windows; without a list, every second layer below ``max_window_layers`` has one; other Qwens begin there."""
    windows = read_windows(config, layers, switch=True, full_every=2)
    if config.has("layer_types"):
        return windows
    end = config.integer("max_window_layers", 28, low=0)
    return [window if i < end else None for i, window in enumerate(windows)]


_SHARED = {
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    width = metadata.integer("expert_shared_feed_forward_length", metadata.integer("feed_forward_length"))
    return {**QWEN3.values(metadata, file), "shared_expert_intermediate_size": width, "norm_topk_prob": False}


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    width = np.uint32(config.integer("shared_expert_intermediate_size"))
    return {**small_expert_metadata(config, network), "expert_shared_feed_forward_length": width}


UNSEEN = ("norm_topk_prob",)
GGUF = GGUFFamily(
    architecture="qwen2moe",
    model_type="qwen2_moe",
    auto_class="Qwen2MoeForCausalLM",
    inner={**PRE_NORMS, **ATTENTION, **EXPERTS, **_SHARED},
    biases=frozenset({"attn_q", "attn_k", "attn_v"}),
    head="own",
    values=_read_gguf,
    metadata=_write_gguf,
)
