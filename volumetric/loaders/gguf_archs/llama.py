"""Llama, and what else has its data flow, such as Mistral without its window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    """Flags that the metadata do not have: seen in the tensors of the first layer."""
    given.require("expert_count", 0)
    return {
        "attention_bias": "blk.0.attn_q.bias" in file.entries,
        "mlp_bias": "blk.0.ffn_up.bias" in file.entries,
    }


FAMILY = GGUFFamily(
    model_type="llama",
    auto_class="LlamaForCausalLM",
    interleaved=True,
    biases=frozenset({"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}),
    factors=True,
    values=_values,
)
