"""Which layers of a GGUF model attend within a window: one number for a repeating pattern, or a truth value a layer."""

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
    """Return Hugging Face's ``layer_types``: every `period`-th layer attends in full, or what the file lists.

    Parameters
    ----------
    default : period of files that do not say it

    Raises
    ------
    CheckpointError
        The pattern is neither a number nor a list that fits the layers.
    """
    pattern = metadata.values.get(KEY)
    if not isinstance(pattern, np.ndarray):
        period = metadata.integer(KEY, default, low=0)
        return [_KINDS[period != 0 and (i + 1) % period != 0] for i in range(layers)]
    if pattern.ndim != 1 or pattern.size < layers or pattern.dtype.kind not in "biu":
        raise CheckpointError(f"{metadata.where}: {KEY} lists {pattern.size} values, the model has {layers} layers")
    return [_KINDS[bool(slides)] for slides in pattern[:layers]]


def without_idle_windows(network: Network, context: int) -> Network:
    """Return a network without windows and chunks that are no shorter than the context, 0 where it is unknown."""

    def plain(spec: LayerSpec) -> LayerSpec:
        if not isinstance(spec, MultiHeadAttention) or not context:
            return spec
        idle = {name: None for name in ("window", "chunk") if (getattr(spec, name) or 0) >= context}
        return replace(spec, **idle) if idle else spec

    return replace(network, layers={coord: plain(spec) for coord, spec in network.layers.items()})


def idle_window(config: Config) -> Mapping[str, Any]:
    """Return a window that cuts nothing as metadata, for architectures in which llama.cpp wants one in some layer."""
    longest = config.integer("max_position_embeddings", 2048)
    return {"attention.sliding_window": np.uint32(max(longest, config.integer("sliding_window", 1)))}


def pattern_of(network: Network) -> Mapping[str, Any]:
    """Return window and pattern of a network as metadata; nothing for one without windows.

    A pattern that repeats is written as its period, which all readers know, any other one as a list.
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
