"""GPT-NeoX and Pythia: queries, keys and values one behind the other, where the original has them head by head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del file
    # The files do not name the activation. The published models have the exact GELU, the default of transformers;
    # llama.cpp computes the tanh approximation, which differs by less than 5e-4.
    # All of a head turns unless rope_parameters say otherwise; in configurations absent means a quarter.
    return {"hidden_act": "gelu", "rotary_pct": 1.0, "use_parallel_residual": given.flag("use_parallel_residual", True)}


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    del network
    return {"use_parallel_residual": np.bool_(config.flag("use_parallel_residual", True))}


FAMILY = GGUFFamily(
    model_type="gpt_neox",
    auto_class="GPTNeoXForCausalLM",
    inner={
        "input_layernorm": "attn_norm",
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    },
    outer={"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output"},
    stack="gpt_neox.layers",
    renamed={"num_key_value_heads": None, "head_dim": None},
    epsilon="layer_norm_eps",
    biases=frozenset({"attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"}),
    head="own",
    partial=True,
    values=_values,
    metadata=_metadata,
)
