"""Gemma 2 (arXiv 2408.00118): every other layer sees a window, scores and logits are capped."""

from __future__ import annotations

from volumetric.loaders.gemma_layers import HEAD_DIM, gemma_decoder
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
    """Network and rules of a Gemma 2 configuration."""
    layers = config.layers()
    return gemma_decoder(
        config,
        ropes=[read_rope(config, config.integer("head_dim", HEAD_DIM))] * layers,
        windows=read_windows(config, layers, switch=False, full_every=2),
        qk_norm=False,
    )
