"""StarCoder 2 (arXiv 2402.19173): LayerNorm, plain MLP with biases, grouped attention with a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.layers import MLP, LayerNorm
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import ATTENTION, PRE_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import BlockLayer, attention_blocks, pre_norm_stack
from volumetric.loaders.tensor_source import TensorSource


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a StarCoder 2 configuration."""
    hidden, layers, bias = config.integer("hidden_size"), config.layers(), config.flag("use_bias", True)
    norm = LayerNorm(num_features=hidden, eps=config.number("norm_epsilon", 1e-5))
    ropes = [read_rope(config, head_dim(config))] * layers
    windows = read_windows(config, layers, switch=False)
    mlp = MLP(
        in_features=hidden,
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_act", "gelu_pytorch_tanh"),
        bias=bias,
    )
    attentions = attention_blocks(config, ropes, windows, qkv_bias=bias, out_bias=bias)
    feeds = [BlockLayer(mlp, "mlp", {"up": "c_fc", "down": "c_proj"})] * layers
    return pre_norm_stack(config, norm, attentions, feeds, tied=True)


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del metadata, file
    # llama.cpp refuses files without biases.
    return {"use_bias": True, "hidden_act": "gelu_pytorch_tanh"}


GGUF = GGUFFamily(
    architecture="starcoder2",
    model_type="starcoder2",
    auto_class="Starcoder2ForCausalLM",
    inner={**PRE_NORMS, **ATTENTION, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    epsilon="norm_epsilon",
    biases=frozenset({"attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"}),
    values=_read_gguf,
)
