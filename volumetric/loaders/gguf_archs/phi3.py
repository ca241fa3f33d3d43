"""Phi-3 and Phi-4: queries, keys and values in one tensor, gate and up in another, in the order of the original."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import PRE_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del file
    # The window is kept, as in transformers; llama.cpp's own code for this architecture lets every layer see all.
    window = given.integer("attention.sliding_window", 0, low=0)
    return {"sliding_window": window or None}


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    del network
    if not config.has("sliding_window"):
        return {}
    return {"attention.sliding_window": np.uint32(config.integer("sliding_window"))}


FAMILY = GGUFFamily(
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
    values=_values,
    metadata=_metadata,
)
