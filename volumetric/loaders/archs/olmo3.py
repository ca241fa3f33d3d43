"""OLMo 3 (arXiv 2512.13961): OLMo 2 in which three of four layers have a window and a separate RoPE."""

from __future__ import annotations

from volumetric.loaders.archs.olmo2 import GGUF, olmo_decoder
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_ropes_by_kind
from volumetric.loaders.name_rules import ModelBlueprint

BASE = 500_000.0
"""Default rotary base."""

__all__ = ["GGUF", "build"]


def build(config: Config) -> ModelBlueprint:
    """Network and rules of an OLMo 3 configuration."""
    layers = config.layers()
    config = config.with_values(sliding_window=config.integer("sliding_window", 4096))
    windows = read_windows(config, layers, switch=False, full_every=4)
    # In the old spelling, rope_scaling is for the layers with full attention.
    full, sliding = read_ropes_by_kind(config, head_dim(config), BASE, config.number("rope_theta", BASE))
    return olmo_decoder(config, ropes=[full if window is None else sliding for window in windows], windows=windows)
