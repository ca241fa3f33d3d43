"""Llama 1 to 3 (arXiv 2302.13971, 2407.21783), and all models with this type, such as SmolLM2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import PRE_NORM_LAYER, GGUFFamily, expert_metadata, expert_values
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import pre_norm_decoder
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Llama configuration."""
    layers = config.layers()
    bias = config.flag("attention_bias", False)
    return pre_norm_decoder(
        config,
        ropes=[read_rope(config, head_dim(config))] * layers,
        windows=[None] * layers,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
    )


_MIXTURE: Final[Mapping[str, str]] = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
}


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    """Flags that are missing in the metadata: the tensors of the first layer show them."""
    if metadata.integer("expert_count", 0, low=0):
        return {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **expert_values(metadata, file)}
    return {
        "attention_bias": "blk.0.attn_q.bias" in file.entries,
        "mlp_bias": "blk.0.ffn_up.bias" in file.entries,
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    return expert_metadata(config, network) if config.family == "mixtral" else {}


GGUF = GGUFFamily(
    architecture="llama",
    model_type="llama",
    auto_class="LlamaForCausalLM",
    inner={**PRE_NORM_LAYER, **_MIXTURE},
    interleaved=True,
    biases=frozenset({"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}),
    factors=True,
    longrope=True,
    values=_read_gguf,
    metadata=_write_gguf,
)
"""Llama, and models with the same data flow: Mistral and Mixtral if no window is shorter than the context."""
