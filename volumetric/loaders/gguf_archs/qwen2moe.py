"""Qwen1.5 and Qwen2 MoE: a mixture and a shared expert in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_archs.qwen3moe import FAMILY as QWEN3
from volumetric.loaders.gguf_experts import small_expert_metadata
from volumetric.loaders.gguf_family import ATTENTION, EXPERTS, PRE_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

_SHARED = {
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    width = given.integer("expert_shared_feed_forward_length", given.integer("feed_forward_length"))
    return {**QWEN3.values(given, file), "shared_expert_intermediate_size": width, "norm_topk_prob": False}


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    width = np.uint32(config.integer("shared_expert_intermediate_size"))
    return {**small_expert_metadata(config, network), "expert_shared_feed_forward_length": width}


FAMILY = GGUFFamily(
    model_type="qwen2_moe",
    auto_class="Qwen2MoeForCausalLM",
    inner={**PRE_NORMS, **ATTENTION, **EXPERTS, **_SHARED},
    biases=frozenset({"attn_q", "attn_k", "attn_v"}),
    head="own",
    values=_values,
    metadata=_metadata,
)
