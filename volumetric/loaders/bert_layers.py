"""The encoder of BERT and RoBERTa, which differ in names, in the first position and in what judges texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from volumetric.graph.numeric.activations import Activation
from volumetric.layers import MLP, Dense, LayerNorm, MultiHeadAttention
from volumetric.loaders.chain import Chain
from volumetric.loaders.encoder_layers import (
    BlockNames,
    MaskNames,
    add_mask_head,
    add_typed_tokens,
    head_of,
    labels,
    learned_positions,
    post_norm_block,
    task,
)
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint

BLOCK = BlockNames(
    attention="attention",
    projections={"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"},
    attention_norm="attention.output.LayerNorm",
    mlp="",
    factors={"up": "intermediate.dense", "down": "output.dense"},
    mlp_norm="output.LayerNorm",
)
_BUFFERS = r"(?:\w+\.)?embeddings\.(?:position_ids|token_type_ids)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BertNames:
    """What a family calls its tensors.

    Attributes
    ----------
    prefix : of the encoder's tensors, left out where there is no head
    mask : of the head that predicts tokens
    judge : layers of the head that judges texts, and their activations
    ignored : see `Blueprint`
    """

    prefix: str
    mask: MaskNames
    judge: Mapping[str, Activation]
    ignored: tuple[str, ...]


def bert_encoder(config: Config, names: BertNames, first_position: int = 0) -> Blueprint:
    """Build the encoder that `config` describes, with the head that its architecture names."""
    config.require("position_embedding_type", "absolute")
    config.require("is_decoder", False)
    config.require("add_cross_attention", False)
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    norm = LayerNorm(num_features=width, eps=config.number("layer_norm_eps", 1e-12))
    activation = config.activation("hidden_act", "gelu")
    attention = MultiHeadAttention(
        embed_dim=width, num_heads=heads, head_dim=None, qkv_bias=True, out_bias=True, causal=False
    )
    mlp = MLP(in_features=width, hidden_features=config.integer("intermediate_size"), activation=activation)
    positions, context = learned_positions(config, width, first_position)
    chain, prefix = Chain(), names.prefix + "embeddings"
    tokens, _ = add_typed_tokens(chain, prefix, config, positions, f"{prefix}.position_embeddings")
    stream = chain.add(norm, f"{prefix}.LayerNorm")
    for i in range(config.layers()):
        chain.plane()
        stream = post_norm_block(chain, stream, f"{names.prefix}encoder.layer.{i}", (attention, mlp, norm), BLOCK)
    todo = task(config)
    if todo == "mask":
        add_mask_head(chain, tokens, config, names.mask, norm=norm, activation=activation)
    ignored = (_BUFFERS, *names.ignored)
    head = None
    if todo == "judge":
        sizes = [width] * len(names.judge) + [labels(config)]
        layers = {
            name: Dense(in_features=sizes[i], out_features=sizes[i + 1], activation=act)
            for i, (name, act) in enumerate(names.judge.items())
        }
        head = head_of(layers, width, names.prefix)
        ignored = (*ignored, r"classifier\..*")
    made = chain.blueprint(
        context_length=context, ignored=ignored, prefix=names.prefix, hidden=stream if todo == "mask" else None
    )
    return dataclasses.replace(made, pooled=head)
