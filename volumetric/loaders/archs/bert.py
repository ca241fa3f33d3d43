"""BERT (Devlin et al. 2018, arXiv 1810.04805): learned positions, token types, post-norm blocks, two heads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import MLP, Dense, LayerNorm, MultiHeadAttention
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
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network

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
    """Names of the tensors of a family.

    Attributes
    ----------
    prefix : prefix of the encoder's tensors; omitted if there is no head
    mask : names of the head that predicts masked tokens
    judge : layers of the text classification head, and their activations
    ignored : see `ModelBlueprint`
    """

    prefix: str
    mask: MaskNames
    judge: Mapping[str, Activation]
    ignored: tuple[str, ...]


def bert_encoder(config: Config, names: BertNames, first_position: int = 0) -> ModelBlueprint:
    """Build the encoder that `config` describes, with the head of its architecture."""
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
    chain, prefix = CheckpointNetworkBuilder(), names.prefix + "embeddings"
    tokens, _ = add_typed_tokens(chain, prefix, config, positions, f"{prefix}.position_embeddings")
    stream = chain.add(norm, f"{prefix}.LayerNorm")
    for i in range(config.layers()):
        chain.next_plane()
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
    blueprint = chain.blueprint(
        context_length=context, ignored=ignored, prefix=names.prefix, hidden=stream if todo == "mask" else None
    )
    return dataclasses.replace(blueprint, pooled=head)


NAMES = BertNames(
    prefix="bert.",
    mask=MaskNames(
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        decoder="cls.predictions.decoder",
        bias="cls.predictions.bias",
    ),
    judge={"bert.pooler.dense": "tanh", "classifier": "linear"},
    # A pooler that no head reads, the next-sentence head of pre-training, and a copied bias.
    ignored=(r"(?:bert\.)?pooler\..*", r"cls\.seq_relationship\..*", r"cls\.predictions\.decoder\.bias"),
)


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a BERT configuration."""
    return bert_encoder(config, NAMES)


def read_encoder(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    """Return the number of token types, which only the tensor shows in all files. Refuses causal attention."""
    if metadata.flag("attention.causal", False):
        raise UnsupportedError(
            f"{metadata.where}: causal attention is not supported", hint="supported: bidirectional attention"
        )
    types = file.entries.get("token_types.weight")
    return {} if types is None or not types.shape else {"type_vocab_size": types.shape[0]}


def write_encoder(config: Config, network: Network) -> Mapping[str, Any]:
    """Return the metadata of bidirectional attention."""
    del config, network
    return {"attention.causal": np.bool_(False)}


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    values = read_encoder(metadata, file)
    if "token_types.weight" not in file.entries:
        return _distilbert_values(metadata)
    # The files do not name the activation. The published models use the exact GELU; llama.cpp computes the tanh
    # approximation from a table in float16.
    return {**values, "hidden_act": "gelu"}


def _distilbert_values(metadata: Config) -> Mapping[str, Any]:
    epsilon = metadata.number("attention.layer_norm_epsilon")
    if not math.isclose(epsilon, _DISTILLED_EPSILON, rel_tol=1e-6):
        raise UnsupportedError(
            f"{metadata.where}: DistilBERT with an epsilon of {epsilon} is not supported",
            hint=f"without token_types.weight it must be {_DISTILLED_EPSILON}",
        )
    return {
        "model_type": "distilbert",
        "architectures": ["DistilBertModel"],
        "dim": metadata.integer("embedding_length"),
        "hidden_dim": metadata.integer("feed_forward_length"),
        "n_layers": metadata.layers("block_count"),
        "n_heads": metadata.integer("attention.head_count"),
        "activation": "gelu",
    }


_DISTILLED_EPSILON: Final = 1e-12
_DISTILLED: Final = {
    "attention.q_lin": "attn_q",
    "attention.k_lin": "attn_k",
    "attention.v_lin": "attn_v",
    "attention.out_lin": "attn_output",
    "sa_layer_norm": "attn_output_norm",
    "ffn.lin1": "ffn_up",
    "ffn.lin2": "ffn_down",
    "output_layer_norm": "layer_output_norm",
}
_PRODUCTS: Final = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}

GGUF = GGUFFamily(
    architecture="bert",
    model_type="bert",
    auto_class="BertModel",
    inner={**_PRODUCTS, **_DISTILLED},
    outer={
        "distilbert.embeddings.word_embeddings": "token_embd",
        "distilbert.embeddings.position_embeddings": "position_embd",
        "distilbert.embeddings.LayerNorm": "token_embd_norm",
        "bert.embeddings.word_embeddings": "token_embd",
        "bert.embeddings.token_type_embeddings": "token_types",
        "bert.embeddings.position_embeddings": "position_embd",
        "bert.embeddings.LayerNorm": "token_embd_norm",
    },
    stack=("bert.encoder.layer", "distilbert.transformer.layer"),
    renamed={"num_key_value_heads": None, "head_dim": None, "rope_parameters": None},
    epsilon="layer_norm_eps",
    biases=frozenset(_PRODUCTS.values()),
    singles=frozenset({"token_types.weight", "position_embd.weight"}),
    head="shared",
    values=_read_gguf,
    metadata=write_encoder,
)
"""BERT and related models: bidirectional post-norm blocks, learned positions; these files contain no head.

Files without token types are DistilBERT. RoBERTa is written as BERT, see `gguf_fold`."""
