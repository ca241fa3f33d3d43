"""Mistral 7B (arXiv 2310.06825): Llama with a sliding window."""

from __future__ import annotations

from volumetric.loaders.archs.llama import GGUF
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import pre_norm_decoder

__all__ = ["GGUF", "build"]


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Mistral configuration."""
    layers = config.layers()
    return pre_norm_decoder(
        config,
        ropes=[read_rope(config, head_dim(config))] * layers,
        windows=read_windows(config, layers, switch=False),
    )
