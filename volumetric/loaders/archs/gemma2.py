"""Gemma 2 (arXiv 2408.00118): every other layer has an attention window, scores and logits are soft-capped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.layers import MultiHeadAttention, RMSNorm, Rope, SwiGLU
from volumetric.loaders.decoder import stacked_decoder
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, GGUFFamily
from volumetric.loaders.gguf_windows import pattern_of, read_pattern
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.loaders.pre_norm import ATTENTION_NAMES, MLP_NAMES
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network
from volumetric.network.grid import Coord

HEAD_DIM = 256
"""Default width of a head in all Gemma models."""


def gemma_decoder(
    config: Config, *, ropes: Sequence[Rope], windows: Sequence[int | None], qk_norm: bool, causal: bool = True
) -> ModelBlueprint:
    """Build a Gemma 2 or 3 decoder; see `pre_norm.pre_norm_decoder` for the arguments."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    norm = RMSNorm(num_features=hidden, eps=config.number("rms_norm_eps", 1e-6), unit_offset=True)
    bias = config.flag("attention_bias", False)
    mlp = SwiGLU(
        in_features=hidden,
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_activation", "gelu_pytorch_tanh"),
    )

    def place(chain: CheckpointNetworkBuilder, i: int, prefix: str, stream: Coord) -> Coord:
        attention = MultiHeadAttention(
            embed_dim=hidden,
            num_heads=heads,
            num_kv_heads=config.integer("num_key_value_heads", heads),
            head_dim=config.integer("head_dim", HEAD_DIM),
            qkv_bias=bias,
            out_bias=bias,
            rope=ropes[i],
            window=windows[i],
            causal=causal,
            softcap=_cap(config, "attn_logit_softcapping"),
            scale=config.number("query_pre_attn_scalar", 256) ** -0.5,
            qk_norm=qk_norm,
            qk_norm_eps=norm.eps,
            qk_norm_unit_offset=qk_norm,
        )
        chain.add(norm, f"{prefix}.input_layernorm")
        chain.add(attention, f"{prefix}.self_attn", ATTENTION_NAMES)
        chain.add(norm, f"{prefix}.post_attention_layernorm")
        stream = chain.residual(stream)
        chain.add(norm, f"{prefix}.pre_feedforward_layernorm")
        chain.add(mlp, f"{prefix}.mlp", MLP_NAMES)
        chain.add(norm, f"{prefix}.post_feedforward_layernorm")
        return chain.residual(stream)

    return stacked_decoder(
        config,
        place,
        norm,
        tied=True,
        embedding_scale=math.sqrt(hidden),
        softcap=_cap(config, "final_logit_softcapping"),
    )


def _cap(config: Config, name: str) -> float | None:
    return config.number(name) if config.has(name) else None


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Gemma 2 configuration."""
    layers = config.layers()
    return gemma_decoder(
        config,
        ropes=[read_rope(config, config.integer("head_dim", HEAD_DIM))] * layers,
        windows=read_windows(config, layers, switch=False, full_every=2),
        qk_norm=False,
    )


SANDWICH_NORMS: Final[Mapping[str, str]] = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
RENAMED: Final[Mapping[str, str | None]] = {"hidden_act": "hidden_activation"}
_LAYERS_OF_27B: Final = 46
_CAPS: Final[Mapping[str, float]] = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
"""Key → default soft cap in llama.cpp."""


def score_scalar(metadata: Config, layers_of_27b: int) -> int:
    """Number whose inverse root scales the scores: the head's width, but in the 27B model the hidden size per head.

    Files do not contain it; llama.cpp also recognises the model by its number of layers.
    """
    heads, hidden = metadata.integer("attention.head_count"), metadata.integer("embedding_length")
    share = hidden // heads or 1
    return (
        share if metadata.integer("block_count") == layers_of_27b else metadata.integer("attention.key_length", share)
    )


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    layers = metadata.layers("block_count")
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": score_scalar(metadata, _LAYERS_OF_27B),
        **{name: metadata.number(name, usual) for name, usual in _CAPS.items()},
        "sliding_window": metadata.integer("attention.sliding_window", 4096),
        "layer_types": read_pattern(metadata, layers, default=2),
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    caps = {name: np.float32(config.number(name)) for name in _CAPS if config.has(name)}
    return {**caps, **pattern_of(network)}


UNSEEN = ("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "sliding_window")
GGUF = GGUFFamily(
    architecture="gemma2",
    model_type="gemma2",
    auto_class="Gemma2ForCausalLM",
    inner={**SANDWICH_NORMS, **ATTENTION, **GATED_MLP},
    renamed=RENAMED,
    head="shared",
    values=_read_gguf,
    metadata=_write_gguf,
)
"""Gemma 2: norms after each block, caps on scores and logits, a window in every other layer."""
