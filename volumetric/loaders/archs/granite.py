"""Granite 3 (https://hf.co/ibm-granite): Llama with factors on embeddings, scores, residual sums and logits."""

from __future__ import annotations

from volumetric.loaders.granite_layers import granite_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import gated_mlp


def build(config: Config) -> Blueprint:
    """Network and rules of a Granite configuration."""
    return granite_decoder(config, gated_mlp(config, bias=config.flag("mlp_bias", False)))
