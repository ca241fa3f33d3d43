"""Mixtral (arXiv 2401.04088): Mistral with a mixture of experts in each layer; every token uses two."""

from __future__ import annotations

from collections.abc import Mapping

from volumetric.loaders.archs.llama import GGUF
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.expert_layers import expert_count, experts
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import StoredForm
from volumetric.loaders.pre_norm import attention_blocks, pre_norm_stack, rms_norm

NAMES: Mapping[str, StoredForm] = {"gate": "w1", "up": "w3", "down": "w2"}

__all__ = ["GGUF", "build"]


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Mixtral configuration."""
    layers = config.layers()
    ropes = [read_rope(config, head_dim(config))] * layers
    attentions = attention_blocks(config, ropes, read_windows(config, layers, switch=False))
    mixture = experts(
        config,
        count=expert_count(config, 8),
        hidden=config.integer("intermediate_size"),
        path="block_sparse_moe",
        names=NAMES,
    )
    return pre_norm_stack(config, rms_norm(config, eps=1e-5), attentions, [mixture] * layers)
