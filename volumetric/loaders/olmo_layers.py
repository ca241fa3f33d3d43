"""Layers of OLMo 2 and 3: each block's output is normalised before it is added, its input is not."""

from __future__ import annotations

from collections.abc import Sequence

from volumetric.grid import Coord
from volumetric.layers import Rope
from volumetric.loaders.chain import Chain
from volumetric.loaders.decoder import stacked_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import attention_blocks, gated_mlp, rms_norm


def olmo_decoder(config: Config, *, ropes: Sequence[Rope], windows: Sequence[int | None]) -> Blueprint:
    """Build an OLMo 2 or 3 decoder; see `pre_norm.pre_norm_decoder` for the arguments."""
    norm, bias = rms_norm(config, eps=1e-5), config.flag("attention_bias", False)
    attentions = attention_blocks(
        config,
        ropes,
        windows,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
        qk_norm_eps=norm.eps,
        qk_norm_over="all",
    )
    mlp = gated_mlp(config)

    def place(chain: Chain, i: int, prefix: str, stream: Coord) -> Coord:
        attentions[i].place(chain, prefix)
        chain.add(norm, f"{prefix}.post_attention_layernorm")
        stream = chain.residual(stream)
        mlp.place(chain, prefix)
        chain.add(norm, f"{prefix}.post_feedforward_layernorm")
        return chain.residual(stream)

    return stacked_decoder(config, place, norm, tied=False)
