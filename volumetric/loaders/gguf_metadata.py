"""Metadata of a network in a GGUF file: the inverse of `gguf_config.read_config`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.graph.numeric.rope import Rope
from volumetric.layers import MLP, Mamba, Mamba2, MultiHeadAttention, SwiGLU
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_rope import needs_only_factors, yarn_growth
from volumetric.loaders.gguf_windows import attentions
from volumetric.loaders.gguf_write import Metadata
from volumetric.loaders.hf_config import Config
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import Network


def gguf_metadata(model: LoadedModel, network: Network, family: GGUFFamily, blocks: int) -> Metadata:
    """Return general keys and those of the architecture for a network that is written in so many blocks."""
    architecture, config = family.architecture, Config(model.config, model.name)
    attention = next(iter(attentions(network)), None)
    hidden = [spec.hidden_features for spec in network.layers.values() if isinstance(spec, SwiGLU | MLP)]
    epsilon = next(spec.eps for spec in network.layers.values() if hasattr(spec, "eps"))  # pyright: ignore[reportAttributeAccessIssue]
    own: dict[str, Any] = {
        "block_count": np.uint32(blocks),
        "context_length": np.uint32(model.context_length),
        "embedding_length": np.uint32(_width(network)),
        **({} if attention is None else _attention(attention)),
        family.epsilon_key: np.float32(epsilon),
        "vocab_size": np.uint32(config.integer("vocab_size")),
        **({"feed_forward_length": np.uint32(hidden[0])} if hidden else {}),
        **_rope(main_rope(network), family, tensors_alone=not family.named_longrope),
        **family.metadata(config, network),
    }
    return {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": model.name,
        "general.quantization_version": np.uint32(2),
        **{f"{architecture}.{key}": value for key, value in own.items()},
    }


def _attention(spec: MultiHeadAttention) -> dict[str, Any]:
    return {
        "attention.head_count": np.uint32(spec.num_heads),
        "attention.head_count_kv": np.uint32(spec.kv_heads),
        "attention.key_length": np.uint32(spec.width),
        "attention.value_length": np.uint32(spec.width),
    }


def _width(network: Network) -> int:
    """Width of the residual stream, which every mixer reads and writes."""
    mixers = (MultiHeadAttention, Mamba, Mamba2)
    return next(spec.embed_dim for spec in network.layers.values() if isinstance(spec, mixers))


def main_rope(network: Network) -> Rope | None:
    """Return the rotary embedding for the main keys: that of full attention if windows have another."""
    turning = [spec for spec in attentions(network) if spec.rope is not None]
    return next((spec.rope for spec in turning if spec.window is None), turning[0].rope if turning else None)


def _rope(rope: Rope | None, family: GGUFFamily, *, tensors_alone: bool) -> dict[str, Any]:
    """Metadata of a rotary embedding; in some architectures longrope has only tensors, no key."""
    if rope is None:
        return {}
    values: dict[str, Any] = {
        "rope.freq_base": np.float32(rope.base),
        "rope.dimension_count": np.uint32(rope.dim),
    }
    if rope.scaling == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": np.float32(rope.factor)}
    if rope.scaling == "yarn":
        values |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": np.float32(rope.factor),
            "rope.scaling.original_context_length": np.uint32(rope.original_context),
            "rope.scaling.yarn_beta_fast": np.float32(rope.beta_fast),
            "rope.scaling.yarn_beta_slow": np.float32(rope.beta_slow),
        }
        more = rope.attention_factor / yarn_growth(rope.factor)
        values |= {} if math.isclose(more, 1.0, rel_tol=1e-6) else {"rope.scaling.attn_factor": np.float32(more)}
    if rope.scaling == "longrope" and not (family.factors and needs_only_factors(rope)):
        values |= {} if tensors_alone else {"rope.scaling.type": "longrope"}
        values |= {
            "rope.scaling.original_context_length": np.uint32(rope.original_context),
            "rope.scaling.attn_factor": np.float32(rope.attention_factor),
        }
    return values
