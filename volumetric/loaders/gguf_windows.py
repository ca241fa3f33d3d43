"""Layers of a GGUF model with an attention window: a period, or a truth value for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.layers import LayerSpec, MultiHeadAttention
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

KEY = "attention.sliding_window_pattern"
_KINDS = {True: "sliding_attention", False: "full_attention"}


def attentions(network: Network) -> list[MultiHeadAttention]:
    """Return the attention layers of a network, in order."""
    return [spec for spec in network.layers.values() if isinstance(spec, MultiHeadAttention)]


def read_pattern(metadata: Config, layers: int, *, default: int) -> list[str]:
    """Return Hugging Face's ``layer_types``: every `period`-th layer has full attention, or as the file lists.

    Parameters
    ----------
    default : period of files without the key

    Raises
    ------
    CheckpointError
        The pattern is neither a number nor a list with a value for each layer.
    """
    pattern = metadata.values.get(KEY)
    if not isinstance(pattern, np.ndarray):
        period = metadata.integer(KEY, default, low=0)
        return [_KINDS[period != 0 and (i + 1) % period != 0] for i in range(layers)]
    if pattern.ndim != 1 or pattern.size < layers or pattern.dtype.kind not in "biu":
        raise CheckpointError(f"{metadata.where}: {KEY} lists {pattern.size} values, but the model has {layers} layers")
    return [_KINDS[bool(slides)] for slides in pattern[:layers]]


def without_idle_windows(network: Network, context: int) -> Network:
    """Return a network without windows and chunks of at least the context length (0 if unknown)."""

    def plain(spec: LayerSpec) -> LayerSpec:
        if not isinstance(spec, MultiHeadAttention) or not context:
            return spec
        idle = {name: None for name in ("window", "chunk") if (getattr(spec, name) or 0) >= context}
        return replace(spec, **idle) if idle else spec

    return replace(network, layers={coord: plain(spec) for coord, spec in network.layers.items()})


def idle_window(config: Config) -> Mapping[str, Any]:
    """Return metadata of a window without effect, for architectures in which llama.cpp requires one."""
    longest = config.integer("max_position_embeddings", 2048)
    return {"attention.sliding_window": np.uint32(max(longest, config.integer("sliding_window", 1)))}


def pattern_of(network: Network) -> Mapping[str, Any]:
    """Return window and pattern of a network as metadata; empty without windows.

    A repeating pattern is written as its period, which all readers support, any other pattern as a list.
    """
    slides = [spec.window is not None for spec in attentions(network)]
    windows = {spec.window for spec in attentions(network) if spec.window is not None}
    if len(windows) != 1:
        return {}
    (window,) = windows
    period = slides.index(False) + 1 if False in slides else len(slides) + 1
    repeats = slides == [(i + 1) % period != 0 for i in range(len(slides))]
    return {
        "attention.sliding_window": np.uint32(window),
        KEY: np.uint32(period) if repeats else np.array(slides),
    }
