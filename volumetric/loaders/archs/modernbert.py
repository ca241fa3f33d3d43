"""ModernBERT (Warner et al. 2024, arXiv 2412.13663): pre-norm, GeGLU, RoPE, two of three layers local."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.layers import Dense, Embedding, LayerNorm, MultiHeadAttention, Rope, SwiGLU
from volumetric.loaders.archs.bert import read_encoder, write_encoder
from volumetric.loaders.encoder_layers import MaskNames, add_mask_head, head_of, labels, task
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_windows import KEY, attentions, read_pattern
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder, FusedTensor
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network

_PREFIX = "model."
_MASK = MaskNames(dense="head.dense", norm="head.norm", decoder="decoder", bias="decoder.bias")
_BASES = {"full_attention": ("global_rope_theta", 160_000.0), "sliding_attention": ("local_rope_theta", 10_000.0)}


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a ModernBERT configuration."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    hidden, bias = config.integer("intermediate_size"), config.flag("attention_bias", False)
    norm = LayerNorm(num_features=width, eps=config.number("norm_eps", 1e-5), bias=config.flag("norm_bias", False))
    attentions = {
        kind: MultiHeadAttention(
            embed_dim=width,
            num_heads=heads,
            qkv_bias=bias,
            out_bias=bias,
            causal=False,
            rope=_rope(config, kind, width // heads),
            # Half of the local span on each side, plus the row itself, which `window` counts too.
            window=config.integer("local_attention", 128) // 2 + 1 if kind == "sliding_attention" else None,
        )
        for kind in _BASES
    }
    mlp = SwiGLU(
        in_features=width,
        hidden_features=hidden,
        activation=config.activation("hidden_activation", "gelu"),
        bias=config.flag("mlp_bias", False),
    )
    fused = {name: FusedTensor("Wqkv", FusedRows(i * width, (i + 1) * width)) for i, name in enumerate("qkv")}
    gated = {
        "gate": FusedTensor("Wi", FusedRows(0, hidden)),
        "up": FusedTensor("Wi", FusedRows(hidden, 2 * hidden)),
        "down": "Wo",
    }
    layers = config.layers()
    kinds = config.items("layer_types", layers) or _kinds(config, layers)
    chain = CheckpointNetworkBuilder()
    table = Embedding(num_embeddings=config.integer("vocab_size"), embedding_dim=width)
    tokens = chain.add(table, f"{_PREFIX}embeddings.tok_embeddings")
    stream = chain.add(norm, f"{_PREFIX}embeddings.norm")
    for i, kind in enumerate(kinds):
        chain.next_plane()
        prefix = f"{_PREFIX}layers.{i}"
        if i:
            chain.add(norm, f"{prefix}.attn_norm")
        chain.add(_attention_of_kind(config, kind, attentions), f"{prefix}.attn", {**fused, "o": "Wo"})
        stream = chain.residual(stream)
        chain.add(norm, f"{prefix}.mlp_norm")
        chain.add(mlp, f"{prefix}.mlp", gated)
        stream = chain.residual(stream)
    chain.next_plane()
    last = chain.add(norm, f"{_PREFIX}final_norm")
    todo, head = task(config), None
    activation = config.activation("classifier_activation", "gelu")
    dense_bias = config.flag("classifier_bias", False)
    if todo == "mask":
        decoder_bias = config.flag("decoder_bias", True)
        add_mask_head(
            chain,
            tokens,
            config,
            _MASK,
            norm=norm,
            activation=activation,
            dense_bias=dense_bias,
            decoder_bias=decoder_bias,
        )
    elif todo == "judge":
        config.require("classifier_pooling", "cls", "mean")
        first = Dense(in_features=width, out_features=width, activation=activation, bias=dense_bias)
        classes = Dense(in_features=width, out_features=labels(config))
        parts = {"head.dense": first, "head.norm": norm, "classifier": classes}
        head = head_of(parts, width)
    blueprint = chain.blueprint(
        context_length=config.integer("max_position_embeddings", 8192),
        ignored=(r"(?:head|classifier)\..*",) if todo == "judge" else (),
        prefix=_PREFIX,
        hidden=last if todo == "mask" else None,
    )
    mean = config.values.get("classifier_pooling") == "mean"
    return dataclasses.replace(blueprint, pooled=head, pooling="mean" if mean else "cls")


def _rope(config: Config, kind: str, width: int) -> Rope:
    """Rotary embedding of global or local layers: one base for each, in the old or the new spelling."""
    section = config.section("rope_parameters")
    inner = None if section is None else section.section(kind)
    name, base = _BASES[kind]
    if inner is not None:
        return read_rope(config.with_values(rope_parameters=inner.values), width, default_base=base)
    return Rope(dim=width, base=config.number(name, base))


def _kinds(config: Config, layers: int) -> list[str]:
    every = config.integer("global_attn_every_n_layers", 3)
    return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]


def _attention_of_kind(config: Config, kind: object, attentions: dict[str, MultiHeadAttention]) -> MultiHeadAttention:
    config = config.with_values(layer_types=kind)
    config.require("layer_types", *attentions)
    return attentions[str(kind)]


_LOCAL_BASE: Final = "rope.freq_base_swa"
_BASE: Final = 10_000.0


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    metadata.require("rope.scaling.type", "none")
    layers = metadata.layers("block_count")
    if isinstance(metadata.values.get(KEY), np.ndarray):
        kinds = read_pattern(metadata, layers, default=3)
    else:  # the first layer of a period has full attention, in other architectures the last one
        period = metadata.integer(KEY, 3)
        kinds = ["sliding_attention" if i % period else "full_attention" for i in range(layers)]
    full, local = metadata.number("rope.freq_base", _BASE), metadata.number(_LOCAL_BASE, _BASE)
    return {
        **read_encoder(metadata, file),
        "hidden_activation": metadata.values.get("hidden_activation", "gelu"),
        "local_attention": metadata.integer("attention.sliding_window"),
        "layer_types": kinds,
        "global_rope_theta": full,
        "local_rope_theta": local,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base}
            for kind, base in (("full_attention", full), ("sliding_attention", local))
        },
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    layers = attentions(network)
    local = {spec.rope.base for spec in layers if spec.rope is not None and spec.window is not None}
    activation = config.values.get("hidden_activation")
    return {
        **write_encoder(config, network),
        "attention.sliding_window": np.uint32(config.integer("local_attention", 128)),
        KEY: np.array([spec.window is not None for spec in layers]),
        _LOCAL_BASE: np.float32(local.pop() if local else _BASE),
        "rope.scaling.type": "none",
        **({"hidden_activation": activation} if isinstance(activation, str) else {}),
    }


def _differences(network: Network) -> list[str]:
    activations = {spec.activation for spec in network.layers.values() if isinstance(spec, SwiGLU)}
    unknown = activations - {"gelu", "silu"}
    return [f"it has no gated {', '.join(sorted(activations))} in 'modern-bert'"] if unknown else []


UNSEEN = ("local_attention",)
GGUF = GGUFFamily(
    architecture="modern-bert",
    model_type="modernbert",
    auto_class="ModernBertModel",
    inner={
        "attn_norm": "attn_norm",
        "attn.Wqkv": "attn_qkv",
        "attn.Wo": "attn_output",
        "mlp_norm": "ffn_norm",
        "mlp.Wi": "ffn_up",
        "mlp.Wo": "ffn_down",
    },
    outer={
        "model.embeddings.tok_embeddings": "token_embd",
        "model.embeddings.norm": "token_embd_norm",
        "model.final_norm": "output_norm",
    },
    stack="model.layers",
    renamed={"num_key_value_heads": None, "head_dim": None, "hidden_act": None},
    epsilon="norm_eps",
    rms=False,
    head="shared",
    values=_read_gguf,
    metadata=_write_gguf,
    differences=_differences,
)
"""ModernBERT: bidirectional pre-norm blocks; two of three have a window and a separate rotary base."""
