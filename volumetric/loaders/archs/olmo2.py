"""OLMo 2 (arXiv 2501.00656): norms after each block instead of before, and over all queries and all keys of a row."""

from __future__ import annotations

from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint
from volumetric.loaders.olmo_layers import olmo_decoder


def build(config: Config) -> Blueprint:
    """Network and rules of an OLMo 2 configuration."""
    layers = config.layers()
    return olmo_decoder(config, ropes=[read_rope(config, head_dim(config))] * layers, windows=[None] * layers)
