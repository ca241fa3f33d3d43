"""LFM2 (https://arxiv.org/abs/2511.23404): a few attention layers among short gated convolutions with a fixed state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.layers import MultiHeadAttention, RMSNorm, ShortConv, SwiGLU
from volumetric.loaders.decoder import head_dim, stacked_decoder
from volumetric.loaders.gguf_family import KV_HEADS, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.loaders.tensor_source import TensorEntry, TensorSource
from volumetric.network import Network
from volumetric.network.grid import Coord

ATTENTION_NAMES = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "out_proj",
    "q_norm": "q_layernorm",
    "k_norm": "k_layernorm",
}
MLP_NAMES = {"gate": "w1", "up": "w3", "down": "w2"}


def build(config: Config) -> ModelBlueprint:
    """Network and rules of an LFM2 configuration."""
    hidden, heads, width = config.integer("hidden_size"), config.integer("num_attention_heads"), head_dim(config)
    norm = RMSNorm(num_features=hidden, eps=config.number("norm_eps", 1e-5))
    mlp = SwiGLU(in_features=hidden, hidden_features=_mlp_width(config))
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
    attends = _attention_layers(config)

    def place(chain: CheckpointNetworkBuilder, i: int, prefix: str, stream: Coord) -> Coord:
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
    tied_config = config.with_values(tie_word_embeddings=tied)
    return stacked_decoder(tied_config, place, norm, tied=True, norm_name="model.embedding_norm")


def _mlp_width(config: Config) -> int:
    """Width of the MLP's hidden layer, which the configuration may give before adjustment."""
    width = config.integer("block_ff_dim", config.integer("intermediate_size"))
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    width = int(config.number("block_ffn_dim_multiplier", 1.0) * width)
    multiple = config.integer("block_multiple_of", 256)
    return (width + multiple - 1) // multiple * multiple


def _attention_layers(config: Config) -> list[bool]:
    """Whether each layer has attention, by ``layer_types`` or by the older list of indices."""
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


def evidence(entries: Mapping[str, TensorEntry], known: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Blocks with a short convolution instead of attention, and its kernel size."""
    blocks = known.get("num_hidden_layers", 0)
    places = {int(match[1]): entry.shape for name, entry in entries.items() if (match := _SHORT_CONV.match(name))}
    if not places or max(places) >= blocks or any(len(shape) != 3 for shape in places.values()):
        return {}
    kinds = ["conv" if i in places else "full_attention" for i in range(blocks)]
    biases = any(name.endswith(".conv.conv.bias") for name in entries)
    return {
        "layer_types": (kinds, "blocks with a convolution have no attention"),
        "conv_L_cache": (next(iter(places.values()))[2], "taps of the convolutions"),
        "conv_bias": (biases, "the convolutions have biases" if biases else "the convolutions have no biases"),
        "block_auto_adjust_ff_dim": (False, "the MLP's width is that of its tensors"),
    }


_SHORT_CONV = re.compile(r"(?:model\.)?layers\.(\d{1,5})\.conv\.conv\.weight")


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    metadata.require("attention.causal", True)
    metadata.require("attention.sliding_window", 0)
    heads, layers = metadata.values.get(KV_HEADS), metadata.layers("block_count")
    if not isinstance(heads, np.ndarray) or heads.shape != (layers,):
        raise CheckpointError(f"{metadata.where}: {KV_HEADS} is not a list of {layers} numbers")
    return {
        "layer_types": ["full_attention" if count else "conv" for count in heads],
        "conv_L_cache": metadata.integer("shortconv.l_cache", low=2),
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    mixers = [spec for spec in network.layers.values() if isinstance(spec, (MultiHeadAttention, ShortConv))]
    taps = [spec.kernel_size for spec in mixers if isinstance(spec, ShortConv)]
    heads = [spec.kv_heads if isinstance(spec, MultiHeadAttention) else 0 for spec in mixers]
    # A model without convolutions has no kernel size; llama.cpp requires one.
    return {KV_HEADS: np.array(heads, np.int32), "shortconv.l_cache": np.uint32(taps[0] if taps else 3)}


def _differences(network: Network) -> list[str]:
    convolves = any(isinstance(spec, ShortConv) for spec in network.layers.values())
    return [] if convolves else ["it aborts with an assertion if no layer of LFM2 is a convolution"]


GGUF = GGUFFamily(
    architecture="lfm2",
    model_type="lfm2",
    auto_class="Lfm2ForCausalLM",
    inner={
        "operator_norm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm",
        "conv.in_proj": "shortconv.in_proj",
        "conv.conv": "shortconv.conv",
        "conv.out_proj": "shortconv.out_proj",
        "ffn_norm": "ffn_norm",
        "feed_forward.w1": "ffn_gate",
        "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down",
    },
    outer={"model.embed_tokens": "token_embd", "model.embedding_norm": "token_embd_norm", "lm_head": "output"},
    renamed={"tie_word_embeddings": "tie_embedding"},
    epsilon="norm_eps",
    rms=True,
    singles=frozenset({"shortconv.conv.weight"}),
    mixed=True,
    values=_read_gguf,
    metadata=_write_gguf,
    differences=_differences,
)
"""LFM2: short convolutions, and attention in the layers that have key heads."""
