"""StableLM 2 and 3B (https://huggingface.co/stabilityai): Llama with LayerNorm and a quarter of each head rotated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.layers import LayerNorm
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import PRE_NORM_LAYER, GGUFFamily
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import PerHeadVector, StoredForm
from volumetric.loaders.pre_norm import ATTENTION_NAMES, NORMS_OF_EACH_HEAD, attention_blocks, gated_mlp, pre_norm_stack
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a StableLM configuration."""
    layers = config.layers()
    norm = LayerNorm(num_features=config.integer("hidden_size"), eps=config.number("layer_norm_eps", 1e-5))
    rotated = config.number("partial_rotary_factor", 0.25)
    rope = read_rope(config.with_values(partial_rotary_factor=rotated), head_dim(config), partial=True)
    windows = read_windows(config, layers, switch=False)
    heads = config.integer("num_attention_heads")
    names: dict[str, StoredForm] = {
        **ATTENTION_NAMES,
        "q_norm": PerHeadVector("q_layernorm.norms.*", heads),
        "k_norm": PerHeadVector("k_layernorm.norms.*", config.integer("num_key_value_heads", heads)),
    }
    fields: dict[str, Any] = {"qkv_bias": config.flag("use_qkv_bias", False)}
    if config.flag("qk_layernorm", False):
        fields |= {"qk_norm": True, **NORMS_OF_EACH_HEAD, "qk_norm_eps": norm.eps}
    attentions = attention_blocks(config, [rope] * layers, windows, names, **fields)
    feeds = [gated_mlp(config)] * layers
    return pre_norm_stack(config, norm, attentions, feeds, parallel=config.flag("use_parallel_residual", False))


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del metadata
    return {
        "qk_layernorm": "blk.0.attn_q_norm.weight" in file.entries,
        "use_qkv_bias": "blk.0.attn_q.bias" in file.entries,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in file.entries,
        "partial_rotary_factor": 1.0,  # unless rope_parameters say otherwise; absent would mean a quarter
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del network
    return {"use_parallel_residual": np.bool_(config.flag("use_parallel_residual", False))}


UNSEEN = ("partial_rotary_factor",)
GGUF = GGUFFamily(
    architecture="stablelm",
    model_type="stablelm",
    auto_class="StableLmForCausalLM",
    inner={
        **PRE_NORM_LAYER,
        "self_attn.q_layernorm.norms.*": "attn_q_norm",
        "self_attn.k_layernorm.norms.*": "attn_k_norm",
    },
    epsilon="layer_norm_eps",
    biases=frozenset({"attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v"}),
    head="own",
    partial=True,
    values=_read_gguf,
    metadata=_write_gguf,
)
"""StableLM: LayerNorm, partly rotated heads; some models have parallel attention and MLP, and then one norm."""
