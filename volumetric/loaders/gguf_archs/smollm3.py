"""SmolLM3. Every fourth layer leaves out the rotation; the files do not say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_archs.llama import FAMILY as LLAMA
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config

_INTERVAL: Final = 4
"""Constant in llama.cpp's code."""


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    layers = given.layers("block_count")
    return {
        **LLAMA.values(given, file),
        "no_rope_layer_interval": _INTERVAL,
        "no_rope_layers": [int((i + 1) % _INTERVAL != 0) for i in range(layers)],
    }


FAMILY = GGUFFamily(
    model_type="smollm3",
    auto_class="SmolLM3ForCausalLM",
    interleaved=True,
    biases=frozenset({"attn_q", "attn_k", "attn_v"}),
    values=_values,
)
