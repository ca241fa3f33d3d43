"""GPT-NeoX (arXiv 2204.06745) and Pythia: parallel attention and MLP, partly rotated heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.layers import MLP, Dense, Embedding, LayerNorm, MultiHeadAttention
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope, trained_context
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder, FusedTensor
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network
from volumetric.network.grid import Coord

# Old checkpoints have masks and frequencies as buffers of each layer.
_BUFFERS = r"(?:gpt_neox\.)?layers\.\d+\.attention\.(?:bias|masked_bias|rotary_emb\.inv_freq)"


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a GPT-NeoX configuration."""
    hidden, vocabulary = config.integer("hidden_size"), config.integer("vocab_size")
    chain = CheckpointNetworkBuilder()
    embedding = chain.add(Embedding(num_embeddings=vocabulary, embedding_dim=hidden), "gpt_neox.embed_in")
    stream = embedding
    for i in range(config.layers()):
        chain.next_plane()
        stream = _layer(config, chain, f"gpt_neox.layers.{i}", stream)
    chain.next_plane()
    chain.add(_norm(config), "gpt_neox.final_layer_norm")
    head = chain.add(Dense(in_features=hidden, out_features=vocabulary, bias=False), "embed_out")
    if config.flag("tie_word_embeddings", False):
        chain.tie(embedding, head)
    return chain.blueprint(context_length=trained_context(config), ignored=(_BUFFERS,), prefix="gpt_neox.")


def _norm(config: Config) -> LayerNorm:
    return LayerNorm(num_features=config.integer("hidden_size"), eps=config.number("layer_norm_eps", 1e-5))


def _layer(config: Config, chain: CheckpointNetworkBuilder, prefix: str, stream: Coord) -> Coord:
    """Add one block after `stream` to the chain, sequential or parallel, and return its last layer."""
    hidden, heads, width = config.integer("hidden_size"), config.integer("num_attention_heads"), head_dim(config)
    bias = config.flag("attention_bias", True)
    attention = MultiHeadAttention(
        embed_dim=hidden,
        num_heads=heads,
        head_dim=width,
        qkv_bias=bias,
        out_bias=bias,
        rope=read_rope(_rename_rotary_values(config), width, partial=True),
    )
    mlp = MLP(
        in_features=hidden,
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_act", "gelu"),
    )
    fused = {
        name: FusedTensor("query_key_value", FusedRows(i * width, (i + 1) * width, heads=heads))
        for i, name in enumerate("qkv")
    }
    chain.add(_norm(config), f"{prefix}.input_layernorm")
    chain.add(attention, f"{prefix}.attention", {**fused, "o": "dense"})
    attended = chain.residual(stream)
    norm = chain.add(_norm(config), f"{prefix}.post_attention_layernorm")
    if config.flag("use_parallel_residual", True):
        chain.set_source(stream, norm)
    chain.add(mlp, f"{prefix}.mlp", {"up": "dense_h_to_4h", "down": "dense_4h_to_h"})
    return chain.residual(attended)


def _rename_rotary_values(config: Config) -> Config:
    """Rename the rotary values of the old spelling to the names of all other families."""
    values = {"partial_rotary_factor": config.number("rotary_pct", 0.25)}
    if config.has("rotary_emb_base"):
        values["rope_theta"] = config.number("rotary_emb_base")
    return config.with_values(**values)


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    # The files do not name the activation. The published models use the exact GELU, the default of transformers;
    # llama.cpp computes the tanh approximation, which differs by less than 5e-4.
    # The whole head rotates unless rope_parameters say otherwise; in configurations absent means a quarter.
    return {
        "hidden_act": "gelu",
        "rotary_pct": 1.0,
        "use_parallel_residual": metadata.flag("use_parallel_residual", True),
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del network
    return {"use_parallel_residual": np.bool_(config.flag("use_parallel_residual", True))}


UNSEEN = ("rotary_pct", "use_parallel_residual")
GGUF = GGUFFamily(
    architecture="gptneox",
    model_type="gpt_neox",
    auto_class="GPTNeoXForCausalLM",
    inner={
        "input_layernorm": "attn_norm",
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    },
    outer={"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output"},
    stack="gpt_neox.layers",
    renamed={"num_key_value_heads": None, "head_dim": None},
    epsilon="layer_norm_eps",
    biases=frozenset({"attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"}),
    head="own",
    partial=True,
    values=_read_gguf,
    metadata=_write_gguf,
)
"""GPT-NeoX and Pythia: queries, then keys, then values; the original stores them head by head."""
