"""Gemma 3 (arXiv 2503.19786), its text model: five of six layers have a window and a separate rotary base.

EmbeddingGemma (arXiv 2509.20354) is the same model with bidirectional attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.loaders.archs.gemma2 import HEAD_DIM, RENAMED, SANDWICH_NORMS, gemma_decoder, score_scalar
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, HEAD_NORMS, GGUFFamily
from volumetric.loaders.gguf_windows import attentions, pattern_of, read_pattern
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_ropes_by_kind
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Gemma 3 configuration."""
    both_ways = config.flag("use_bidirectional_attention", False)
    layers = config.layers()
    pattern = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", 6))
    windows = read_windows(config, layers, switch=False, full_every=pattern)
    if both_ways:  # half of it on each side, plus the row itself
        windows = [None if window is None else window // 2 + 1 for window in windows]
    full, sliding = read_ropes_by_kind(
        config, config.integer("head_dim", HEAD_DIM), 1_000_000.0, config.number("rope_local_base_freq", 10_000.0)
    )
    ropes = [full if window is None else sliding for window in windows]
    blueprint = gemma_decoder(config, ropes=ropes, windows=windows, qk_norm=True, causal=not both_ways)
    classes = config.values.get("architectures")
    plain = isinstance(classes, list) and all(str(name).endswith("Model") for name in classes)
    return trunk_of(blueprint) if both_ways and plain else blueprint


_LAYERS_OF_27B: Final = 62
_LOCAL_BASE: Final = 10_000.0


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    layers, window = metadata.layers("block_count"), metadata.integer("attention.sliding_window", 0, low=0)
    kinds = read_pattern(metadata, layers, default=6) if window else ["full_attention"] * layers
    values: dict[str, Any] = {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": score_scalar(metadata, _LAYERS_OF_27B),
        "sliding_window": window or None,
        "layer_types": kinds,
        "rope_local_base_freq": metadata.number("rope.freq_base_swa", _LOCAL_BASE),
    }
    if metadata.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = metadata.number("final_logit_softcapping")
    return values


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    local = [spec.rope.base for spec in attentions(network) if spec.rope is not None and spec.window is not None]
    values: dict[str, Any] = {"rope.freq_base_swa": np.float32(local[0] if local else _LOCAL_BASE)}
    if config.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = np.float32(config.number("final_logit_softcapping"))
    # A window of 0 means none; readers assume the same without the key, and for windows as long as the context.
    return {**values, **(pattern_of(network) or {"attention.sliding_window": np.uint32(0)})}


UNSEEN = ("query_pre_attn_scalar", "sliding_window")
GGUF = GGUFFamily(
    architecture="gemma3",
    model_type="gemma3_text",
    auto_class="Gemma3ForCausalLM",
    inner={**SANDWICH_NORMS, **ATTENTION, **HEAD_NORMS, **GATED_MLP},
    renamed=RENAMED,
    values=_read_gguf,
    metadata=_write_gguf,
)
"""Gemma 3, its text model: windows in five of six layers, which have a separate rotary base."""
