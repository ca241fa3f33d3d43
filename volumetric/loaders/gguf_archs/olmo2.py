"""OLMo 2: norms after each block and over all heads of queries and keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, HEAD_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del file
    # Files of OLMo 3 call themselves olmo2 and have windows.
    given.require("attention.sliding_window", 0)
    return {}


FAMILY = GGUFFamily(
    model_type="olmo2",
    auto_class="Olmo2ForCausalLM",
    inner={
        **ATTENTION,
        **HEAD_NORMS,
        **GATED_MLP,
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    values=_values,
)
