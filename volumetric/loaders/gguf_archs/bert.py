"""BERT: post-norm blocks that see both ways, learned positions, token types; no head is in these files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def read_encoder(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    """Return how many token types there are, which only the tensor tells everywhere. Refuses causal attention."""
    if given.flag("attention.causal", False):
        raise UnsupportedError(f"{given.where}: causal attention is not supported", hint="supported: an encoder's")
    types = file.entries.get("token_types.weight")
    return {} if types is None or not types.shape else {"type_vocab_size": types.shape[0]}


def write_encoder(config: Config, network: Network) -> Mapping[str, Any]:
    """Return that tokens attend to those behind them, too."""
    del config, network
    return {"attention.causal": np.bool_(False)}


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    # The files do not name the activation. The published models have the exact GELU; llama.cpp computes the tanh
    # approximation from a table in float16.
    return {**read_encoder(given, file), "hidden_act": "gelu"}


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

FAMILY = GGUFFamily(
    model_type="bert",
    auto_class="BertModel",
    inner=_PRODUCTS,
    outer={
        "bert.embeddings.word_embeddings": "token_embd",
        "bert.embeddings.token_type_embeddings": "token_types",
        "bert.embeddings.position_embeddings": "position_embd",
        "bert.embeddings.LayerNorm": "token_embd_norm",
    },
    stack="bert.encoder.layer",
    renamed={"num_key_value_heads": None, "head_dim": None, "rope_parameters": None},
    epsilon="layer_norm_eps",
    biases=frozenset(_PRODUCTS.values()),
    singles=frozenset({"token_types.weight", "position_embd.weight"}),
    head=False,
    values=_values,
    metadata=write_encoder,
)
