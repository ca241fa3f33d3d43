"""Granite 3 MoE (https://hf.co/ibm-granite): Granite with mixtures of experts, stacked in two tensors a layer."""

from __future__ import annotations

from volumetric.loaders.experts import expert_count, stacked_experts
from volumetric.loaders.granite_layers import granite_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
    """Network and rules of a Granite MoE configuration."""
    mixture = stacked_experts(
        config,
        count=expert_count(config, 8),
        hidden=config.integer("intermediate_size"),
        path="block_sparse_moe",
        router="router.layer.weight",
        inner="input_linear",
        outer="output_linear",
    )
    return granite_decoder(config, mixture)
