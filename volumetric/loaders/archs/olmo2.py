"""OLMo 2 (arXiv 2501.00656): norms after each block instead of before, and over all query and key heads of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.layers import Rope
from volumetric.loaders.decoder import head_dim, stacked_decoder
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, HEAD_NORMS, GGUFFamily
from volumetric.loaders.gguf_rope import read_rope as read_gguf_rope
from volumetric.loaders.gguf_windows import attentions, pattern_of, read_pattern
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.loaders.pre_norm import attention_blocks, gated_mlp, rms_norm
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network
from volumetric.network.grid import Coord


def olmo_decoder(config: Config, *, ropes: Sequence[Rope], windows: Sequence[int | None]) -> ModelBlueprint:
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

    def place(chain: CheckpointNetworkBuilder, i: int, prefix: str, stream: Coord) -> Coord:
        attentions[i].place(chain, prefix)
        chain.add(norm, f"{prefix}.post_attention_layernorm")
        stream = chain.residual(stream)
        mlp.place(chain, prefix)
        chain.add(norm, f"{prefix}.post_feedforward_layernorm")
        return chain.residual(stream)

    return stacked_decoder(config, place, norm, tied=False)


def build(config: Config) -> ModelBlueprint:
    """Network and rules of an OLMo 2 configuration."""
    layers = config.layers()
    return olmo_decoder(config, ropes=[read_rope(config, head_dim(config))] * layers, windows=[None] * layers)


_LOCAL_BASE: Final = "rope.freq_base_swa"


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    window = metadata.integer("attention.sliding_window", 0, low=0)
    if window == 0:
        return {}
    heads, hidden = metadata.integer("attention.head_count"), metadata.integer("embedding_length")
    full = read_gguf_rope(metadata, file, metadata.integer("attention.key_length", hidden // heads or 1))
    # Layers with a window have RoPE without the scaling of the others.
    local = {"rope_type": "default", "rope_theta": metadata.number(_LOCAL_BASE, full["rope_theta"])}
    return {
        "model_type": "olmo3",
        "architectures": ["Olmo3ForCausalLM"],
        "sliding_window": window,
        "layer_types": read_pattern(metadata, metadata.layers("block_count"), default=4),
        "rope_parameters": {"full_attention": full, "sliding_attention": local},
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    local = {spec.rope.base for spec in attentions(network) if spec.rope is not None and spec.window is not None}
    return {**pattern_of(network), **({_LOCAL_BASE: np.float32(local.pop())} if local else {})}


GGUF = GGUFFamily(
    architecture="olmo2",
    model_type="olmo2",
    auto_class="Olmo2ForCausalLM",
    inner={
        **ATTENTION,
        **HEAD_NORMS,
        **GATED_MLP,
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    head="own",
    values=_read_gguf,
    metadata=_write_gguf,
)
"""OLMo 2 and 3: norms after each block and over all query and key heads; files with windows are OLMo 3."""
