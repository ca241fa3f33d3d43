"""Command R (https://huggingface.co/CohereForAI): parallel attention and MLP after one LayerNorm; scaled logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.layers import LayerNorm, Rope
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, HEAD_NORMS, GGUFFamily
from volumetric.loaders.gguf_windows import attentions
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import InterleavedHeads, PerHeadVector, StoredForm
from volumetric.loaders.pre_norm import ATTENTION_NAMES, NORMS_OF_EACH_HEAD, attention_blocks, gated_mlp, pre_norm_stack
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def cohere_decoder(
    config: Config, *, ropes: Sequence[Rope | None], windows: Sequence[int | None], qk_norm: bool = False
) -> ModelBlueprint:
    """Build a Cohere decoder; see `pre_norm.pre_norm_decoder` for the arguments.

    The checkpoint rotates elements 2i and 2i + 1 of a head together. The rows of queries and keys, and their gains, are
    reordered, so that the halves rotate as in all families here; scores are the same.
    """
    norm = LayerNorm(num_features=config.integer("hidden_size"), eps=config.number("layer_norm_eps", 1e-5), bias=False)
    heads, bias = config.integer("num_attention_heads"), config.flag("attention_bias", False)
    kv_heads = config.integer("num_key_value_heads", heads)
    names: dict[str, StoredForm] = {
        **ATTENTION_NAMES,
        "q": InterleavedHeads("q_proj", heads),
        "k": InterleavedHeads("k_proj", kv_heads),
        "q_norm": PerHeadVector("q_norm", heads, interleaved=True),
        "k_norm": PerHeadVector("k_norm", kv_heads, interleaved=True),
    }
    norms = {"qk_norm": True, **NORMS_OF_EACH_HEAD, "qk_norm_eps": norm.eps} if qk_norm else {}
    attentions = attention_blocks(config, ropes, windows, names, qkv_bias=bias, out_bias=bias, **norms)
    feeds = [gated_mlp(config)] * len(attentions)
    scale = config.number("logit_scale", 0.0625)
    return pre_norm_stack(config, norm, attentions, feeds, parallel=True, tied=True, logit_scale=scale)


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Cohere configuration."""
    layers = config.layers()
    rope = read_rope(config, head_dim(config), default_base=500_000.0)
    norms = config.flag("use_qk_norm", False)
    return cohere_decoder(config, ropes=[rope] * layers, windows=[None] * layers, qk_norm=norms)


INNER: Final = {"input_layernorm": "attn_norm", **ATTENTION, **GATED_MLP}


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    return {**read_logit_scale(metadata, file), "use_qk_norm": "blk.0.attn_q_norm.weight" in file.entries}


def read_logit_scale(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    """Return the factor on the logits."""
    del file
    return {"logit_scale": metadata.number("logit_scale")}


def write_logit_scale(config: Config, network: Network) -> Mapping[str, Any]:
    """Return the factor on the logits as metadata."""
    del network
    return {"logit_scale": np.float32(config.number("logit_scale", 0.0625))}


COMMAND_R_PLUS = 64
"""Number of layers from which llama.cpp expects the norms of Command R+."""


def _unreadable(network: Network) -> str:
    layers = attentions(network)
    if layers[0].qk_norm == (len(layers) >= COMMAND_R_PLUS):
        return ""
    return (
        f"GGUF's 'command-r' expects norms of heads if and only if there are at least {COMMAND_R_PLUS} layers, "
        "as in Command R+: "
        f"{len(layers)} layers {'with' if layers[0].qk_norm else 'without'} them are not readable"
    )


UNSEEN = ("logit_scale",)
GGUF = GGUFFamily(
    architecture="command-r",
    model_type="cohere",
    auto_class="CohereForCausalLM",
    inner={**INNER, **HEAD_NORMS},
    epsilon="layer_norm_eps",
    interleaved=True,
    head="shared",
    values=_read_gguf,
    metadata=write_logit_scale,
    unreadable=_unreadable,
)
"""Command R (Cohere): one LayerNorm without bias before parallel attention and MLP, scaled logits."""
