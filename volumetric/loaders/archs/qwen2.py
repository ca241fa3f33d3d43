"""Qwen2 and Qwen2.5 (arXiv 2407.10671): Llama with biases on queries, keys and values."""

from __future__ import annotations

from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_windows import attentions
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import pre_norm_decoder
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Qwen2 configuration."""
    layers = config.layers()
    return pre_norm_decoder(
        config,
        ropes=[read_rope(config, head_dim(config))] * layers,
        windows=read_windows(config, layers, switch=True),
        qkv_bias=True,
    )


def _unreadable(network: Network) -> str:
    attention = attentions(network)[0]
    if attention.num_heads * attention.width == attention.embed_dim:
        return ""
    return (
        f"qwen2 in GGUF files must have square query projections: {attention.num_heads} heads of {attention.width} "
        f"do not give {attention.embed_dim} features"
    )


GGUF = GGUFFamily(
    architecture="qwen2",
    model_type="qwen2",
    auto_class="Qwen2ForCausalLM",
    biases=frozenset({"attn_q", "attn_k", "attn_v"}),
    unreadable=_unreadable,
)
