"""Shared parts of encoders: token and type embeddings, post-norm blocks, and heads on the hidden states."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from volumetric.graph.numeric.activations import Activation
from volumetric.layers import (
    MLP,
    Dense,
    Embedding,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    PositionEmbedding,
    SwiGLU,
)
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder, FusedTensor
from volumetric.network import Network
from volumetric.network.grid import Coord, Port

MASKED: Final = ("ForMaskedLM", "ForPreTraining")
JUDGING: Final = "ForSequenceClassification"
TOKEN_TYPES: Final = "token_type_ids"
"""Input with the token types: to which text of a pair each token belongs."""

Names = Mapping[str, str | FusedTensor]


def task(config: Config) -> str:
    """Task of a checkpoint by its first architecture: ``"mask"``, ``"judge"`` (classification) or ``"hidden"``."""
    architectures = config.values.get("architectures")
    name = (
        architectures[0]
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str)
        else ""
    )
    if name.endswith(MASKED):
        return "mask"
    return "judge" if name.endswith(JUDGING) else "hidden"


def labels(config: Config) -> int:
    """Number of classes of a head, as in transformers."""
    named = config.section("id2label")
    return config.integer("num_labels", 2 if named is None else max(len(named.values), 1))


def add_typed_tokens(
    chain: CheckpointNetworkBuilder, prefix: str, config: Config, then: LayerSpec, name: str
) -> tuple[Coord, Coord]:
    """Add the embeddings of tokens and token types, then `then`, which reads their sum.

    Returns
    -------
    Coordinates of the token embedding and of `then`
    """
    vocabulary, types = config.integer("vocab_size"), config.integer("type_vocab_size", 2, high=1024)
    width = config.integer("hidden_size")
    tokens = chain.add(Embedding(num_embeddings=vocabulary, embedding_dim=width), f"{prefix}.word_embeddings")
    of_types = chain.add(Embedding(num_embeddings=types, embedding_dim=width), f"{prefix}.token_type_embeddings")
    chain.input(TOKEN_TYPES, Port(coord=of_types, dtype="int32", default=0))
    behind = chain.add(then, name)
    chain.set_source(tokens, behind, "add")
    return tokens, behind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BlockNames:
    """Names of the tensors of a post-norm block, below the block's prefix."""

    attention: str
    projections: Names
    attention_norm: str
    mlp: str
    factors: Names
    mlp_norm: str


def post_norm_block(
    chain: CheckpointNetworkBuilder,
    stream: Coord,
    prefix: str,
    layers: tuple[MultiHeadAttention, MLP | SwiGLU, LayerNorm],
    names: BlockNames,
) -> Coord:
    """``x = norm(x + attention(x))``, then ``x = norm(x + mlp(x))``, as in Vaswani et al. 2017."""
    attention, mlp, norm = layers
    chain.add(attention, _join(prefix, names.attention), names.projections)
    chain.residual(stream)
    stream = chain.add(norm, _join(prefix, names.attention_norm))
    chain.add(mlp, _join(prefix, names.mlp), names.factors)
    chain.residual(stream)
    return chain.add(norm, _join(prefix, names.mlp_norm))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if name else prefix


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MaskNames:
    """Names of the tensors of a masked language model head."""

    dense: str
    norm: str
    decoder: str
    bias: str


def add_mask_head(
    chain: CheckpointNetworkBuilder,
    tokens: Coord,
    config: Config,
    names: MaskNames,
    *,
    norm: LayerNorm,
    activation: Activation,
    dense_bias: bool = True,
    decoder_bias: bool = True,
) -> None:
    """Add ``norm(act(x W)) Eᵀ + b``, which predicts the token at a row; E is the token embedding unless untied.

    Parameters
    ----------
    tokens : layer of the token embedding
    """
    width, vocabulary = norm.num_features, config.integer("vocab_size")
    chain.next_plane()
    chain.add(Dense(in_features=width, out_features=width, activation=activation, bias=dense_bias), names.dense)
    chain.add(norm, names.norm)
    head = chain.add(
        Dense(in_features=width, out_features=vocabulary, bias=decoder_bias),
        "",
        {"weight": f"{names.decoder}.weight", "bias": names.bias},
    )
    if config.flag("tie_word_embeddings", True):
        chain.tie(tokens, head)


def head_of(layers: Mapping[str, LayerSpec], width: int, prefix: str = "") -> ModelBlueprint:
    """Network on pooled hidden states: `layers` in order, with the prefixes of their tensors."""
    chain = CheckpointNetworkBuilder()
    for name, spec in layers.items():
        chain.add(spec, name)
    return chain.blueprint(context_length=0, ignored=(".*",), prefix=prefix, features=width)


def trunk_of(blueprint: ModelBlueprint) -> ModelBlueprint:
    """Return a blueprint without the head: its output is the hidden states. Tensors of the head are ignored."""
    if blueprint.hidden is None:
        return blueprint
    network = network_up_to(blueprint.network, blueprint.hidden)
    param_keys = network.param_specs().keys()
    dropped = [rule.source for rule in blueprint.rules if rule.key not in param_keys]
    return dataclasses.replace(
        blueprint,
        network=network,
        rules=tuple(rule for rule in blueprint.rules if rule.key in param_keys),
        ignored=(*blueprint.ignored, *map(re.escape, (*dropped, *blueprint.tied))),
        tied={},
        hidden=None,
    )


def network_up_to(network: Network, last: Coord) -> Network:
    """Return the layers of a network up to `last`, the only output, with the links among them."""
    layers = {coord: spec for coord, spec in network.layers.items() if coord <= last}
    links = tuple(link for link in network.links if link.source in layers and link.target in layers)
    inputs = {name: port for name, port in network.inputs.items() if port.coord in layers}
    disabled = network.disabled & layers.keys()
    ends = {"inputs": inputs, "outputs": {}}
    return dataclasses.replace(network, layers=layers, links=links, disabled=frozenset(disabled), **ends)


def learned_positions(config: Config, width: int, offset: int = 0) -> tuple[PositionEmbedding, int]:
    """Learned position embedding, and its maximum number of tokens."""
    size = config.integer("max_position_embeddings", 512)
    return PositionEmbedding(num_embeddings=size, embedding_dim=width, offset=offset), size - offset
