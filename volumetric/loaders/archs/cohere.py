"""Command R (https://huggingface.co/CohereForAI): attention and MLP read one LayerNorm side by side; scaled logits."""

from __future__ import annotations

from volumetric.loaders.cohere_layers import cohere_decoder
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
    """Network and rules of a Cohere configuration."""
    layers = config.layers()
    rope = read_rope(config, head_dim(config), default_base=500_000.0)
    norms = config.flag("use_qk_norm", False)
    return cohere_decoder(config, ropes=[rope] * layers, windows=[None] * layers, qk_norm=norms)
