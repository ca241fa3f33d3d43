"""ModernBERT (Warner et al. 2024, arXiv 2412.13663): pre-norm, GeGLU, RoPE, two of three layers local."""

from __future__ import annotations

import dataclasses

from volumetric.layers import Dense, Embedding, LayerNorm, MultiHeadAttention, Rope, SwiGLU
from volumetric.loaders.chain import Chain, Fused
from volumetric.loaders.encoder_layers import MaskNames, add_mask_head, head_of, labels, task
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.names import Blueprint, Part

_PREFIX = "model."
_MASK = MaskNames(dense="head.dense", norm="head.norm", decoder="decoder", bias="decoder.bias")
_BASES = {"full_attention": ("global_rope_theta", 160_000.0), "sliding_attention": ("local_rope_theta", 10_000.0)}


def build(config: Config) -> Blueprint:
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
            # Half of the local span on each side, the row itself beside: `window` counts that too.
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
    fused = {name: Fused("Wqkv", Part(i * width, (i + 1) * width)) for i, name in enumerate("qkv")}
    gated = {"gate": Fused("Wi", Part(0, hidden)), "up": Fused("Wi", Part(hidden, 2 * hidden)), "down": "Wo"}
    layers = config.layers()
    kinds = config.items("layer_types", layers) or _kinds(config, layers)
    chain = Chain()
    table = Embedding(num_embeddings=config.integer("vocab_size"), embedding_dim=width)
    tokens = chain.add(table, f"{_PREFIX}embeddings.tok_embeddings")
    stream = chain.add(norm, f"{_PREFIX}embeddings.norm")
    for i, kind in enumerate(kinds):
        chain.plane()
        prefix = f"{_PREFIX}layers.{i}"
        if i:
            chain.add(norm, f"{prefix}.attn_norm")
        chain.add(_known(config, kind, attentions), f"{prefix}.attn", {**fused, "o": "Wo"})
        stream = chain.residual(stream)
        chain.add(norm, f"{prefix}.mlp_norm")
        chain.add(mlp, f"{prefix}.mlp", gated)
        stream = chain.residual(stream)
    chain.plane()
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
    made = chain.blueprint(
        context_length=config.integer("max_position_embeddings", 8192),
        ignored=(r"(?:head|classifier)\..*",) if todo == "judge" else (),
        prefix=_PREFIX,
        hidden=last if todo == "mask" else None,
    )
    mean = config.values.get("classifier_pooling") == "mean"
    return dataclasses.replace(made, pooled=head, pooling="mean" if mean else "cls")


def _rope(config: Config, kind: str, width: int) -> Rope:
    """Rotary embedding of global or local layers: a base for each, in the old spelling or the new."""
    given = config.section("rope_parameters")
    inner = None if given is None else given.section(kind)
    name, base = _BASES[kind]
    if inner is not None:
        return read_rope(config.with_values(rope_parameters=inner.values), width, default_base=base)
    return Rope(dim=width, base=config.number(name, base))


def _kinds(config: Config, layers: int) -> list[str]:
    every = config.integer("global_attn_every_n_layers", 3)
    return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]


def _known(config: Config, kind: object, attentions: dict[str, MultiHeadAttention]) -> MultiHeadAttention:
    config = config.with_values(layer_types=kind)
    config.require("layer_types", *attentions)
    return attentions[str(kind)]
