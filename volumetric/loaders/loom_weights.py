"""Order of the weights of a layer in its single vector in the Go engine Loom."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.layers import (
    LSTM,
    RNN,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    SwiGLU,
)
from volumetric.layers.conv_transpose import ConvTranspose

Fields = Mapping[str, Any]
Weights = Mapping[str, Array]
"""Parameter name → array."""

_GATES: Final = 4  # input, forget, cell, output: the order of both


def split_weights(spec: LayerSpec, flat: Array) -> dict[str, Array]:
    """Split the engine's vector into the parameters of `spec`; parameters that the engine lacks are omitted."""
    if isinstance(spec, ConvTranspose):  # [filters, channels, …] there
        shape = spec.params()[0].shape
        return {"weight": flat.reshape(shape[1], shape[0], *shape[2:]).swapaxes(0, 1)}
    if isinstance(spec, (RNN, LSTM)):
        gates = 1 if isinstance(spec, RNN) else _GATES
        wide, deep, n = spec.input_size, spec.hidden_size, spec.hidden_size
        blocks = flat.reshape(gates, n * (wide + deep + 1))
        return {
            "ih.weight": blocks[:, : n * wide].reshape(gates * n, wide),
            "hh.weight": blocks[:, n * wide : n * (wide + deep)].reshape(gates * n, deep),
            "ih.bias": blocks[:, n * (wide + deep) :].reshape(gates * n),
        }
    parts: dict[str, Array] = {}
    at = 0
    for name, shape in ordered_shapes(spec):
        size = math.prod(shape)
        parts[name] = flat[at : at + size].reshape(shape)
        at += size
    return parts


def join_weights(spec: LayerSpec, parts: Weights) -> Array:
    """Return the engine's vector of the parameters of `spec`, the inverse of `split_weights`."""
    if isinstance(spec, ConvTranspose):
        return parts["weight"].swapaxes(0, 1).ravel()
    if isinstance(spec, (RNN, LSTM)):
        gates, n = (1 if isinstance(spec, RNN) else _GATES), spec.hidden_size
        bias = parts["ih.bias"] + parts["hh.bias"] if spec.bias else np.zeros(gates * n, parts["ih.weight"].dtype)
        columns = (parts["ih.weight"], parts["hh.weight"], bias)
        return np.concatenate([part.reshape(gates, -1) for part in columns], axis=1).ravel()
    vectors = [parts.get(name, np.zeros(shape, np.float32)).ravel() for name, shape in ordered_shapes(spec)]
    return np.concatenate(vectors) if vectors else np.zeros(0, np.float32)


def ordered_shapes(spec: LayerSpec) -> list[tuple[str, Shape]]:
    """Parameters in the engine's order: matrices first, then all biases, those that `spec` lacks included."""
    if isinstance(spec, MultiHeadAttention):
        q, kv = spec.num_heads * spec.width, spec.kv_heads * spec.width
        wide = {
            "q": (q, spec.embed_dim),
            "k": (kv, spec.embed_dim),
            "v": (kv, spec.embed_dim),
            "o": (spec.embed_dim, q),
        }
    elif isinstance(spec, SwiGLU):
        up = (spec.hidden_features, spec.in_features)
        wide = {"gate": up, "up": up, "down": up[::-1]}
    elif isinstance(spec, LayerNorm):
        return [("weight", (spec.num_features,)), ("bias", (spec.num_features,))]
    else:
        return [(p.name, p.shape) for p in spec.params() if p.name != "bias"]
    weights = [(f"{name}.weight", shape) for name, shape in wide.items()]
    return [*weights, *((f"{name}.bias", (shape[0],)) for name, shape in wide.items())]


def weight_count(spec: LayerSpec) -> int:
    """Elements of the engine's vector."""
    if isinstance(spec, (RNN, LSTM)):
        gates = 1 if isinstance(spec, RNN) else _GATES
        return gates * spec.hidden_size * (spec.input_size + spec.hidden_size + 1)
    return sum(math.prod(shape) for _, shape in ordered_shapes(spec))
