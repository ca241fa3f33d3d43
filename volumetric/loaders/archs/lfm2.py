"""LFM2 (https://arxiv.org/abs/2511.23404): a few layers of attention among short gated convolutions of fixed state."""

from __future__ import annotations

from volumetric.errors import CheckpointError
from volumetric.grid import Coord
from volumetric.layers import MultiHeadAttention, RMSNorm, ShortConv, SwiGLU
from volumetric.loaders.chain import Chain
from volumetric.loaders.decoder import head_dim, stacked_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint

ATTENTION_NAMES = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "out_proj",
    "q_norm": "q_layernorm",
    "k_norm": "k_layernorm",
}
MLP_NAMES = {"gate": "w1", "up": "w3", "down": "w2"}


def build(config: Config) -> Blueprint:
    """Network and rules of an LFM2 configuration."""
    hidden, heads, width = config.integer("hidden_size"), config.integer("num_attention_heads"), head_dim(config)
    norm = RMSNorm(num_features=hidden, eps=config.number("norm_eps", 1e-5))
    mlp = SwiGLU(in_features=hidden, hidden_features=_between(config))
    attention = MultiHeadAttention(
        embed_dim=hidden,
        num_heads=heads,
        num_kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=width,
        rope=read_rope(config, width, default_base=1_000_000.0),
        qk_norm=True,
        qk_norm_eps=norm.eps,
    )
    conv = ShortConv(
        embed_dim=hidden, kernel_size=config.integer("conv_L_cache", 3, low=2), bias=config.flag("conv_bias", False)
    )
    attends = _attending(config)

    def place(chain: Chain, i: int, prefix: str, stream: Coord) -> Coord:
        chain.add(norm, f"{prefix}.operator_norm")
        if attends[i]:
            chain.add(attention, f"{prefix}.self_attn", ATTENTION_NAMES)
        else:
            chain.add(conv, f"{prefix}.conv", {"in": "in_proj", "out": "out_proj"})
        stream = chain.residual(stream)
        chain.add(norm, f"{prefix}.ffn_norm")
        chain.add(mlp, f"{prefix}.feed_forward", MLP_NAMES)
        return chain.residual(stream)

    tied = config.flag("tie_embedding", config.flag("tie_word_embeddings", True))
    given = config.with_values(tie_word_embeddings=tied)
    return stacked_decoder(given, place, norm, tied=True, norm_name="model.embedding_norm")


def _between(config: Config) -> int:
    """Width between the products of the MLP, which the configuration may give before it is adjusted."""
    width = config.integer("block_ff_dim", config.integer("intermediate_size"))
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    width = int(config.number("block_ffn_dim_multiplier", 1.0) * width)
    multiple = config.integer("block_multiple_of", 256)
    return (width + multiple - 1) // multiple * multiple


def _attending(config: Config) -> list[bool]:
    """Whether each layer has attention, in the new spelling or by the list of those that do."""
    layers = config.layers()
    kinds = config.items("layer_types", layers)
    if kinds is not None:
        if any(kind not in ("full_attention", "conv") for kind in kinds):
            raise CheckpointError(f"{config.where}: layer_types holds other kinds than full_attention and conv")
        return [kind == "full_attention" for kind in kinds]
    listed = config.values.get("full_attn_idxs")
    if listed is None:
        return [True] * layers
    if not isinstance(listed, list) or any(type(i) is not int or not 0 <= i < layers for i in listed):
        raise CheckpointError(f"{config.where}: full_attn_idxs is {str(listed)[:60]!r}, expected numbers of layers")
    return [i in listed for i in range(layers)]
