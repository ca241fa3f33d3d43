"""Layers of Cohere's models: attention and gated MLP side by side on one LayerNorm, rotations of neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from volumetric.layers import LayerNorm, Rope
from volumetric.loaders.chain import ByHead, Interleaved, Stored
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint
from volumetric.loaders.pre_norm import ATTENTION_NAMES, NORMS_OF_EACH_HEAD, attention_blocks, gated_mlp, pre_norm_stack


def cohere_decoder(
    config: Config, *, ropes: Sequence[Rope | None], windows: Sequence[int | None], qk_norm: bool = False
) -> Blueprint:
    """Build a Cohere decoder; see `pre_norm.pre_norm_decoder` for the arguments.

    Elements 2i and 2i + 1 of a head turn together where the checkpoint was trained. Reordering the rows of queries and
    keys, and gains of theirs, makes that the rotation of halves that all families here have; scores are the same.
    """
    norm = LayerNorm(num_features=config.integer("hidden_size"), eps=config.number("layer_norm_eps", 1e-5), bias=False)
    heads, bias = config.integer("num_attention_heads"), config.flag("attention_bias", False)
    kv_heads = config.integer("num_key_value_heads", heads)
    names: dict[str, Stored] = {
        **ATTENTION_NAMES,
        "q": Interleaved("q_proj", heads),
        "k": Interleaved("k_proj", kv_heads),
        "q_norm": ByHead("q_norm", heads, interleaved=True),
        "k_norm": ByHead("k_norm", kv_heads, interleaved=True),
    }
    norms = {"qk_norm": True, **NORMS_OF_EACH_HEAD, "qk_norm_eps": norm.eps} if qk_norm else {}
    attentions = attention_blocks(config, ropes, windows, names, qkv_bias=bias, out_bias=bias, **norms)
    feeds = [gated_mlp(config)] * len(attentions)
    scale = config.number("logit_scale", 0.0625)
    return pre_norm_stack(config, norm, attentions, feeds, parallel=True, tied=True, logit_scale=scale)
