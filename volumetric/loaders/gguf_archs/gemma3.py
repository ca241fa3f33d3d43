"""Gemma 3, its text model: windows in five of six layers, which have a rotary base of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_archs.gemma2 import RENAMED, SANDWICH_NORMS, score_scalar
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, HEAD_NORMS, GGUFFamily
from volumetric.loaders.gguf_windows import attentions, pattern_of, read_pattern
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

_LAYERS_OF_27B: Final = 62
_LOCAL_BASE: Final = 10_000.0


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    del file
    layers, window = given.layers("block_count"), given.integer("attention.sliding_window", 0, low=0)
    kinds = read_pattern(given, layers, default=6) if window else ["full_attention"] * layers
    values: dict[str, Any] = {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": score_scalar(given, _LAYERS_OF_27B),
        "sliding_window": window or None,
        "layer_types": kinds,
        "rope_local_base_freq": given.number("rope.freq_base_swa", _LOCAL_BASE),
    }
    if given.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = given.number("final_logit_softcapping")
    return values


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    local = [spec.rope.base for spec in attentions(network) if spec.rope is not None and spec.window is not None]
    values: dict[str, Any] = {"rope.freq_base_swa": np.float32(local[0] if local else _LOCAL_BASE)}
    if config.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = np.float32(config.number("final_logit_softcapping"))
    # A window of 0 is none; without the key, and with windows that cut nothing, readers take it so, too.
    return {**values, **(pattern_of(network) or {"attention.sliding_window": np.uint32(0)})}


FAMILY = GGUFFamily(
    model_type="gemma3_text",
    auto_class="Gemma3ForCausalLM",
    inner={**SANDWICH_NORMS, **ATTENTION, **HEAD_NORMS, **GATED_MLP},
    renamed=RENAMED,
    values=_values,
    metadata=_metadata,
)
