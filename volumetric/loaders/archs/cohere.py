"""Command R (https://huggingface.co/CohereForAI): attention and MLP read one LayerNorm side by side; scaled logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.loaders.cohere_layers import cohere_decoder
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, HEAD_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint
from volumetric.loaders.source import TensorSource
from volumetric.network import Network


def build(config: Config) -> Blueprint:
    """Network and rules of a Cohere configuration."""
    layers = config.layers()
    rope = read_rope(config, head_dim(config), default_base=500_000.0)
    norms = config.flag("use_qk_norm", False)
    return cohere_decoder(config, ropes=[rope] * layers, windows=[None] * layers, qk_norm=norms)


INNER: Final = {"input_layernorm": "attn_norm", **ATTENTION, **GATED_MLP}


def _read_gguf(given: Config, file: TensorSource) -> Mapping[str, Any]:
    return {**read_logit_scale(given, file), "use_qk_norm": "blk.0.attn_q_norm.weight" in file.entries}


def read_logit_scale(given: Config, file: TensorSource) -> Mapping[str, Any]:
    """Return the factor on the logits."""
    del file
    return {"logit_scale": given.number("logit_scale")}


def write_logit_scale(config: Config, network: Network) -> Mapping[str, Any]:
    """Return the factor on the logits as metadata."""
    del network
    return {"logit_scale": np.float32(config.number("logit_scale", 0.0625))}


UNSEEN = ("logit_scale",)
GGUF = GGUFFamily(
    architecture="command-r",
    model_type="cohere",
    auto_class="CohereForCausalLM",
    inner={**INNER, **HEAD_NORMS},
    epsilon="layer_norm_eps",
    interleaved=True,
    head="shared",
    values=_read_gguf,
    metadata=write_logit_scale,
)
"""Command R (Cohere): one LayerNorm without bias before attention and MLP side by side, a factor on the logits."""
