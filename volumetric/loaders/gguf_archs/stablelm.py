"""StableLM: LayerNorm, partly rotated heads; some models have attention and MLP side by side, and then one norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import PRE_NORM_LAYER, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del given
    return {
        "qk_layernorm": "blk.0.attn_q_norm.weight" in file.entries,
        "use_qkv_bias": "blk.0.attn_q.bias" in file.entries,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in file.entries,
        "partial_rotary_factor": 1.0,  # unless rope_parameters say otherwise; absent would mean a quarter
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    del network
    return {"use_parallel_residual": np.bool_(config.flag("use_parallel_residual", False))}


FAMILY = GGUFFamily(
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
    values=_values,
    metadata=_metadata,
)
