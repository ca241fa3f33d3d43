"""LFM2: short convolutions, and attention in the layers that have heads of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.errors import CheckpointError
from volumetric.layers import MultiHeadAttention, ShortConv
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_config import KV_HEADS
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del file
    given.require("attention.causal", True)
    given.require("attention.sliding_window", 0)
    heads, layers = given.values.get(KV_HEADS), given.layers("block_count")
    if not isinstance(heads, np.ndarray) or heads.shape != (layers,):
        raise CheckpointError(f"{given.where}: {KV_HEADS} is no list of {layers} numbers")
    return {
        "layer_types": ["full_attention" if count else "conv" for count in heads],
        "conv_L_cache": given.integer("shortconv.l_cache", low=2),
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    mixers = [spec for spec in network.layers.values() if isinstance(spec, (MultiHeadAttention, ShortConv))]
    taps = [spec.kernel_size for spec in mixers if isinstance(spec, ShortConv)]
    heads = [spec.kv_heads if isinstance(spec, MultiHeadAttention) else 0 for spec in mixers]
    # A model without convolutions has no size of them; llama.cpp wants one.
    return {KV_HEADS: np.array(heads, np.int32), "shortconv.l_cache": np.uint32(taps[0] if taps else 3)}


FAMILY = GGUFFamily(
    model_type="lfm2",
    auto_class="Lfm2ForCausalLM",
    inner={
        "operator_norm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm",
        "conv.in_proj": "shortconv.in_proj",
        "conv.conv": "shortconv.conv",
        "conv.out_proj": "shortconv.out_proj",
        "ffn_norm": "ffn_norm",
        "feed_forward.w1": "ffn_gate",
        "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down",
    },
    outer={"model.embed_tokens": "token_embd", "model.embedding_norm": "token_embd_norm", "lm_head": "output"},
    renamed={"tie_word_embeddings": "tie_embedding"},
    epsilon="norm_eps",
    rms=True,
    singles=frozenset({"shortconv.conv.weight"}),
    mixed=True,
    values=_values,
    metadata=_metadata,
)
