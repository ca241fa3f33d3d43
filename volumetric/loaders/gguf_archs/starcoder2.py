"""StarCoder 2: LayerNorm, a plain MLP, biases throughout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import ATTENTION, PRE_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del given, file
    # llama.cpp refuses files without biases.
    return {"use_bias": True, "hidden_act": "gelu_pytorch_tanh"}


FAMILY = GGUFFamily(
    model_type="starcoder2",
    auto_class="Starcoder2ForCausalLM",
    inner={**PRE_NORMS, **ATTENTION, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    epsilon="norm_epsilon",
    biases=frozenset({"attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"}),
    values=_values,
)
