"""Layers of Gemma 2 and 3: norms before and after each block, gains stored less one, GeGLU, windows in most layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from volumetric.grid import Coord
from volumetric.layers import MultiHeadAttention, RMSNorm, Rope, SwiGLU
from volumetric.loaders.chain import Chain
from volumetric.loaders.decoder import stacked_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import ATTENTION_NAMES, MLP_NAMES

HEAD_DIM = 256
"""Width of a head where the configuration does not say, in all Gemma models."""


def gemma_decoder(
    config: Config, *, ropes: Sequence[Rope], windows: Sequence[int | None], qk_norm: bool, causal: bool = True
) -> Blueprint:
    """Build a Gemma 2 or 3 decoder; see `pre_norm.pre_norm_decoder` for the arguments."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    norm = RMSNorm(num_features=hidden, eps=config.number("rms_norm_eps", 1e-6), unit_offset=True)
    bias = config.flag("attention_bias", False)
    mlp = SwiGLU(
        in_features=hidden,
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_activation", "gelu_pytorch_tanh"),
    )

    def place(chain: Chain, i: int, prefix: str, stream: Coord) -> Coord:
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
