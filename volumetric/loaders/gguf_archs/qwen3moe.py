"""Qwen3 MoE: a mixture in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_experts import expert_values, small_expert_metadata
from volumetric.loaders.gguf_family import ATTENTION, EXPERTS, HEAD_NORMS, PRE_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    values = expert_values(given, file)
    share = given.integer("feed_forward_length") // values["num_experts_per_tok"]
    hidden = given.integer("expert_feed_forward_length", share)
    return {**values, "moe_intermediate_size": hidden, "norm_topk_prob": True}


FAMILY = GGUFFamily(
    model_type="qwen3_moe",
    auto_class="Qwen3MoeForCausalLM",
    inner={**PRE_NORMS, **ATTENTION, **HEAD_NORMS, **EXPERTS},
    values=_values,
    metadata=small_expert_metadata,
)
