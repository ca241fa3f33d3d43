"""Llama, and what else has its data flow: Mistral and Mixtral where no window is shorter than the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_experts import expert_metadata, expert_values
from volumetric.loaders.gguf_family import PRE_NORM_LAYER, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

_MIXTURE: Final[Mapping[str, str]] = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
}


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    """Flags that the metadata do not have: seen in the tensors of the first layer."""
    if given.integer("expert_count", 0, low=0):
        return {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **expert_values(given, file)}
    return {
        "attention_bias": "blk.0.attn_q.bias" in file.entries,
        "mlp_bias": "blk.0.ffn_up.bias" in file.entries,
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    return expert_metadata(config, network) if config.family == "mixtral" else {}


FAMILY = GGUFFamily(
    model_type="llama",
    auto_class="LlamaForCausalLM",
    others=frozenset({"mistral", "mixtral"}),
    inner={**PRE_NORM_LAYER, **_MIXTURE},
    interleaved=True,
    biases=frozenset({"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}),
    factors=True,
    longrope=True,
    values=_values,
    metadata=_metadata,
)
