"""Granite 3 (https://hf.co/ibm-granite): Llama with factors on embeddings, scores, residual sums and logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.loaders.archs.llama import GGUF as LLAMA
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import BlockLayer, attention_blocks, gated_mlp, pre_norm_stack, rms_norm
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def granite_decoder(config: Config, feed: BlockLayer) -> ModelBlueprint:
    """Build a Granite decoder; `feed` is the feed-forward block of each layer."""
    layers, bias = config.layers(), config.flag("attention_bias", False)
    divisor = config.number("logits_scaling", 1.0)
    if divisor == 0:
        raise CheckpointError(f"{config.where}: logits_scaling is 0, but logits are divided by it")
    attentions = attention_blocks(
        config,
        [read_rope(config, head_dim(config))] * layers,
        [None] * layers,
        qkv_bias=bias,
        out_bias=bias,
        scale=config.number("attention_multiplier", 1.0),
    )
    return pre_norm_stack(
        config,
        rms_norm(config),
        attentions,
        [feed] * layers,
        residual_scale=config.number("residual_multiplier", 1.0),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        logit_scale=1 / divisor,
    )


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Granite configuration."""
    return granite_decoder(config, gated_mlp(config, bias=config.flag("mlp_bias", False)))


_FACTORS: Final[Mapping[str, str]] = {
    "embedding_scale": "embedding_multiplier",
    "attention.scale": "attention_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    metadata.require("expert_count", 0)
    return {**LLAMA.values(metadata, file), **read_factors(metadata)}


def read_factors(metadata: Config) -> Mapping[str, Any]:
    """Return the factors on embeddings, scores, blocks and logits."""
    factors = {name: metadata.number(key) for key, name in _FACTORS.items() if metadata.has(key)}
    if "attention_multiplier" not in factors:  # then llama.cpp divides by the root of a head's width
        share = metadata.integer("embedding_length") // metadata.integer("attention.head_count") or 1
        factors["attention_multiplier"] = metadata.integer("attention.key_length", share) ** -0.5
    return factors


def write_factors(config: Config, network: Network) -> Mapping[str, Any]:
    """Return the factors as metadata."""
    del network
    return {key: np.float32(config.number(name, 1.0)) for key, name in _FACTORS.items()}


UNSEEN = tuple(_FACTORS.values())
GGUF = GGUFFamily(
    architecture="granite",
    model_type="granite",
    auto_class="GraniteForCausalLM",
    interleaved=True,
    biases=LLAMA.biases,
    factors=True,
    longrope=True,
    values=_read_gguf,
    metadata=write_factors,
)
