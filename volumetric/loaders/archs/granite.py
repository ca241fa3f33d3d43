"""Granite 3 (https://hf.co/ibm-granite): Llama with factors on embeddings, scores, residual sums and logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.loaders.archs.llama import GGUF as LLAMA
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.granite_layers import granite_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import gated_mlp
from volumetric.loaders.source import TensorSource
from volumetric.network import Network


def build(config: Config) -> Blueprint:
    """Network and rules of a Granite configuration."""
    return granite_decoder(config, gated_mlp(config, bias=config.flag("mlp_bias", False)))


_FACTORS: Final[Mapping[str, str]] = {
    "embedding_scale": "embedding_multiplier",
    "attention.scale": "attention_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}


def _read_gguf(given: Config, file: TensorSource) -> Mapping[str, Any]:
    given.require("expert_count", 0)
    return {**LLAMA.values(given, file), **read_factors(given)}


def read_factors(given: Config) -> Mapping[str, Any]:
    """Return the factors on embeddings, scores, blocks and logits."""
    factors = {name: given.number(key) for key, name in _FACTORS.items() if given.has(key)}
    if "attention_multiplier" not in factors:  # then llama.cpp divides by the root of a head's width
        share = given.integer("embedding_length") // given.integer("attention.head_count") or 1
        factors["attention_multiplier"] = given.integer("attention.key_length", share) ** -0.5
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
