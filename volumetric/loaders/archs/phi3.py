"""Phi-3 (arXiv 2404.14219): Llama with fused projections, q, k and v in one tensor, gate and up in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import PRE_NORMS, GGUFFamily
from volumetric.loaders.gguf_windows import attentions
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint
from volumetric.loaders.network_builder import FusedTensor
from volumetric.loaders.pre_norm import pre_norm_decoder
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Phi-3 configuration."""
    layers, width, heads = config.layers(), head_dim(config), config.integer("num_attention_heads")
    q, kv = heads * width, config.integer("num_key_value_heads", heads) * width
    hidden = config.integer("intermediate_size")
    return pre_norm_decoder(
        config,
        ropes=[read_rope(config, width, partial=True)] * layers,
        windows=read_windows(config, layers, switch=False),
        attention_names={
            "q": FusedTensor("qkv_proj", FusedRows(0, q)),
            "k": FusedTensor("qkv_proj", FusedRows(q, q + kv)),
            "v": FusedTensor("qkv_proj", FusedRows(q + kv, q + 2 * kv)),
            "o": "o_proj",
        },
        mlp_names={
            "gate": FusedTensor("gate_up_proj", FusedRows(0, hidden)),
            "up": FusedTensor("gate_up_proj", FusedRows(hidden, 2 * hidden)),
            "down": "down_proj",
        },
    )


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    # The window stays, as in transformers; llama.cpp's code for this architecture uses full attention in every layer.
    window = metadata.integer("attention.sliding_window", 0, low=0)
    return {"sliding_window": window or None}


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del network
    if not config.has("sliding_window"):
        return {}
    return {"attention.sliding_window": np.uint32(config.integer("sliding_window"))}


def _differences(network: Network) -> list[str]:
    windows = sorted({spec.window for spec in attentions(network) if spec.window is not None})
    if not windows:
        return []
    text = f"it ignores windows of 'phi3', but the model has one of {windows[0]} tokens"
    return [f"{text} (--context {windows[0]} writes a file for contexts that the window covers)"]


UNSEEN = ("partial_rotary_factor",)
GGUF = GGUFFamily(
    architecture="phi3",
    model_type="phi3",
    auto_class="Phi3ForCausalLM",
    inner={
        **PRE_NORMS,
        "self_attn.qkv_proj": "attn_qkv",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    },
    partial=True,
    longrope=True,
    values=_read_gguf,
    metadata=_write_gguf,
    named_longrope=False,
    differences=_differences,
)
"""Phi-3 and Phi-4: queries, keys and values in one tensor, gate and up in another, in the order of the original."""
