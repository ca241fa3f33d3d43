"""Command R7B and Command A (arXiv 2504.00698): Command R in which only layers with a window have RoPE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.loaders.archs.cohere import INNER, cohere_decoder, read_logit_scale, write_logit_scale
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_windows import KEY, attentions, idle_window, pattern_of, read_pattern
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Cohere 2 configuration."""
    layers = config.layers()
    full_every = config.integer("sliding_window_pattern", 4)
    config = config.with_values(sliding_window=config.integer("sliding_window", 4096))
    windows = read_windows(config, layers, switch=False, full_every=full_every)
    rope = read_rope(config, head_dim(config))
    return cohere_decoder(config, ropes=[None if window is None else rope for window in windows], windows=windows)


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    layers = metadata.layers("block_count")
    return {
        **read_logit_scale(metadata, file),
        "sliding_window": metadata.integer("attention.sliding_window", 4096),
        "layer_types": read_pattern(metadata, layers, default=4),
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    # Layers with RoPE are those with a window, even if the window covers the whole context.
    idle = {**idle_window(config), KEY: np.array([spec.rope is not None for spec in attentions(network)])}
    return {**write_logit_scale(config, network), **(pattern_of(network) or idle)}


UNSEEN = ("logit_scale", "sliding_window")
GGUF = GGUFFamily(
    architecture="cohere2",
    model_type="cohere2",
    auto_class="Cohere2ForCausalLM",
    inner=INNER,
    epsilon="layer_norm_eps",
    interleaved=True,
    head="shared",
    values=_read_gguf,
    metadata=_write_gguf,
)
