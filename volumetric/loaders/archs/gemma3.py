"""Gemma 3 (arXiv 2503.19786), its text model: five of six layers see a window, with a rotary base of their own."""

from __future__ import annotations

from volumetric.layers import Rope
from volumetric.loaders.gemma_layers import HEAD_DIM, gemma_decoder
from volumetric.loaders.hf_config import Config, read_rope, read_windows
from volumetric.loaders.names import Blueprint


def build(config: Config) -> Blueprint:
    """Network and rules of a Gemma 3 configuration."""
    config.require("use_bidirectional_attention", False)
    layers = config.layers()
    pattern = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", 6))
    windows = read_windows(config, layers, switch=False, full_every=pattern)
    full, sliding = _ropes(config, config.integer("head_dim", HEAD_DIM))
    ropes = [full if window is None else sliding for window in windows]
    return gemma_decoder(config, ropes=ropes, windows=windows, qk_norm=True)


def _ropes(config: Config, width: int) -> tuple[Rope, Rope]:
    """Rotary embedding of full and of sliding layers: in the old spelling two bases, of which the first is scaled."""
    given = config.section("rope_parameters")
    if given is not None and given.section("full_attention") is not None:
        kinds = (given.values["full_attention"], given.values.get("sliding_attention"))
        full, sliding = (read_rope(config.with_values(rope_parameters=kind), width) for kind in kinds)
        return full, sliding
    base = config.number("rope_local_base_freq", 10_000.0)
    return read_rope(config, width, default_base=1_000_000.0), Rope(dim=width, base=base)
