"""Command R7B (Cohere 2): windows in three of four layers; those that see everything do not turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_archs.command_r import INNER, read_logit_scale, write_logit_scale
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_windows import KEY, attentions, idle_window, pattern_of, read_pattern
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    layers = given.layers("block_count")
    return {
        **read_logit_scale(given, file),
        "sliding_window": given.integer("attention.sliding_window", 4096),
        "layer_types": read_pattern(given, layers, default=4),
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    # Layers that turn are those with a window, also where it cuts nothing.
    idle = {**idle_window(config), KEY: np.array([spec.rope is not None for spec in attentions(network)])}
    return {**write_logit_scale(config, network), **(pattern_of(network) or idle)}


FAMILY = GGUFFamily(
    model_type="cohere2",
    auto_class="Cohere2ForCausalLM",
    inner=INNER,
    epsilon="layer_norm_eps",
    interleaved=True,
    head="shared",
    values=_values,
    metadata=_metadata,
)
