"""Gemma 1 (arXiv 2403.08295): Llama with GeGLU, scaled embeddings and gains that are stored minus one."""

from __future__ import annotations

import math

from volumetric.layers import RMSNorm
from volumetric.loaders.archs.gemma2 import HEAD_DIM
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import attention_blocks, gated_mlp, pre_norm_stack


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Gemma configuration."""
    config.require("use_bidirectional_attention", False)
    hidden, layers = config.integer("hidden_size"), config.layers()
    width = config.integer("head_dim", HEAD_DIM)
    activation = config.values.get("hidden_act")
    if activation in (None, "gelu"):
        activation = "gelu_pytorch_tanh"  # the meaning of "gelu" in the first configurations, as in transformers
    config = config.with_values(head_dim=width, hidden_act=activation)
    norm = RMSNorm(num_features=hidden, eps=config.number("rms_norm_eps", 1e-6), unit_offset=True)
    bias = config.flag("attention_bias", False)
    ropes = [read_rope(config, width)] * layers
    attentions = attention_blocks(config, ropes, [None] * layers, qkv_bias=bias, out_bias=bias)
    feeds = [gated_mlp(config)] * layers
    return pre_norm_stack(config, norm, attentions, feeds, tied=True, embedding_scale=math.sqrt(hidden))


GGUF = GGUFFamily(
    architecture="gemma",
    model_type="gemma",
    auto_class="GemmaForCausalLM",
    head="shared",
    values=lambda metadata, file: {"hidden_act": "gelu_pytorch_tanh"},
)
