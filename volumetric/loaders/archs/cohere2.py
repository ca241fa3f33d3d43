"""Command R7B and Command A (arXiv 2504.00698): Command R in which layers with a window alone have rotations."""

from __future__ import annotations

from volumetric.loaders.cohere_layers import cohere_decoder
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
    """Network and rules of a Cohere 2 configuration."""
    layers = config.layers()
    full_every = config.integer("sliding_window_pattern", 4)
    config = config.with_values(sliding_window=config.integer("sliding_window", 4096))
    windows = read_windows(config, layers, switch=False, full_every=full_every)
    rope = read_rope(config, head_dim(config))
    return cohere_decoder(config, ropes=[None if window is None else rope for window in windows], windows=windows)
