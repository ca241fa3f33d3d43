"""Gemma 3 (arXiv 2503.19786), its text model: five of six layers see a window, with a rotary base of their own.

EmbeddingGemma (arXiv 2509.20354) is the same with rows that see both ways.
"""

from __future__ import annotations

from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.gemma_layers import HEAD_DIM, gemma_decoder
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_ropes_by_kind
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
    """Network and rules of a Gemma 3 configuration."""
    both_ways = config.flag("use_bidirectional_attention", False)
    layers = config.layers()
    pattern = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", 6))
    windows = read_windows(config, layers, switch=False, full_every=pattern)
    if both_ways:  # half of it on each side, the row itself beside
        windows = [None if window is None else window // 2 + 1 for window in windows]
    full, sliding = read_ropes_by_kind(
        config, config.integer("head_dim", HEAD_DIM), 1_000_000.0, config.number("rope_local_base_freq", 10_000.0)
    )
    ropes = [full if window is None else sliding for window in windows]
    made = gemma_decoder(config, ropes=ropes, windows=windows, qk_norm=True, causal=not both_ways)
    classes = config.values.get("architectures")
    plain = isinstance(classes, list) and all(str(name).endswith("Model") for name in classes)
    return trunk_of(made) if both_ways and plain else made
