"""Shared parts of all decoders with one stack of layers: embedding, layers, last norm, head."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from volumetric.layers import Dense, Embedding, LayerNorm, RMSNorm, Scale, Softcap
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import trained_context
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.network.grid import Coord

PlaceLayer: TypeAlias = Callable[[CheckpointNetworkBuilder, int, str, Coord], Coord]
"""Function that adds layer i of the stack, with a tensor prefix, to a stream; returns its last coordinate."""

# Written by old versions of transformers, with the rotary frequencies as a buffer of the model.
_ROTARY_BUFFERS = r"(?:model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"


def head_dim(config: Config) -> int:
    """Width of an attention head: from the configuration, or the hidden size divided by the heads."""
    return config.integer("head_dim", config.integer("hidden_size") // config.integer("num_attention_heads") or 1)


def stacked_decoder(
    config: Config,
    place: PlaceLayer,
    norm: RMSNorm | LayerNorm,
    *,
    tied: bool,
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    norm_name: str = "model.norm",
) -> ModelBlueprint:
    """Build a decoder from layers that `place` adds to the stream, one in each plane of the grid.

    Parameters
    ----------
    norm : the last norm
    tied : default for whether embedding and head share weights
    embedding_scale : factor on embedded tokens
    logit_scale : factor on the logits
    softcap : soft cap of the logits
    norm_name : prefix of the last norm's tensors
    """
    hidden, vocabulary = config.integer("hidden_size"), config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", tied)
    chain = CheckpointNetworkBuilder()
    embedding = chain.add(
        Embedding(num_embeddings=vocabulary, embedding_dim=hidden, scale=embedding_scale), "model.embed_tokens"
    )
    stream = embedding
    for i in range(config.layers()):
        chain.next_plane()
        stream = place(chain, i, f"model.layers.{i}", stream)
    chain.next_plane()
    hidden_states = chain.add(norm, norm_name)
    head = chain.add(Dense(in_features=hidden, out_features=vocabulary, bias=False), "lm_head")
    if logit_scale != 1.0:
        chain.add(Scale(factor=logit_scale))
    if softcap is not None:
        chain.add(Softcap(cap=softcap))
    if tied:
        chain.tie(embedding, head)
    return chain.blueprint(
        context_length=trained_context(config),
        ignored=(_ROTARY_BUFFERS,),
        prefix="model.",
        hidden=hidden_states,
    )
