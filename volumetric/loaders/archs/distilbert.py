"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108): half of BERT's layers, without token types and pooler."""

from __future__ import annotations

import dataclasses

from volumetric.layers import MLP, Dense, Embedding, LayerNorm, MultiHeadAttention
from volumetric.loaders.archs.bert import GGUF
from volumetric.loaders.encoder_layers import (
    BlockNames,
    MaskNames,
    add_mask_head,
    head_of,
    labels,
    learned_positions,
    post_norm_block,
    task,
)
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder

_PREFIX = "distilbert."
_BLOCK = BlockNames(
    attention="attention",
    projections={"q": "q_lin", "k": "k_lin", "v": "v_lin", "o": "out_lin"},
    attention_norm="sa_layer_norm",
    mlp="ffn",
    factors={"up": "lin1", "down": "lin2"},
    mlp_norm="output_layer_norm",
)
_MASK = MaskNames(
    dense="vocab_transform", norm="vocab_layer_norm", decoder="vocab_projector", bias="vocab_projector.bias"
)

__all__ = ["GGUF", "build"]


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a DistilBERT configuration."""
    width = config.integer("dim", 768)
    norm = LayerNorm(num_features=width, eps=1e-12)
    activation = config.activation("activation", "gelu")
    attention = MultiHeadAttention(
        embed_dim=width, num_heads=config.integer("n_heads", 12), qkv_bias=True, out_bias=True, causal=False
    )
    mlp = MLP(in_features=width, hidden_features=config.integer("hidden_dim", 4 * width), activation=activation)
    positions, context = learned_positions(config, width)
    chain, prefix = CheckpointNetworkBuilder(), _PREFIX + "embeddings"
    table = Embedding(num_embeddings=config.integer("vocab_size"), embedding_dim=width)
    tokens = chain.add(table, f"{prefix}.word_embeddings")
    chain.add(positions, f"{prefix}.position_embeddings")
    stream = chain.add(norm, f"{prefix}.LayerNorm")
    for i in range(config.layers("n_layers")):
        chain.next_plane()
        stream = post_norm_block(chain, stream, f"{_PREFIX}transformer.layer.{i}", (attention, mlp, norm), _BLOCK)
    todo, head = task(config), None
    if todo == "mask":
        add_mask_head(chain, tokens, config, _MASK, norm=norm, activation=activation)
    elif todo == "judge":
        first = Dense(in_features=width, out_features=width, activation="relu")
        last = Dense(in_features=width, out_features=labels(config))
        head = head_of({"pre_classifier": first, "classifier": last}, width)
    blueprint = chain.blueprint(
        context_length=context,
        ignored=(r"(?:distilbert\.)?embeddings\.position_ids", r"(?:pre_)?classifier\..*"),
        prefix=_PREFIX,
        hidden=stream if todo == "mask" else None,
    )
    return dataclasses.replace(blueprint, pooled=head)
