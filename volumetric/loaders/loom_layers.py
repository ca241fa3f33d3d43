"""Layers of the Go engine Loom and ours: fields of its JSON, order of the weights in its one vector for a layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import SpecError, UnsupportedError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import (
    LSTM,
    RNN,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dense,
    Embedding,
    Entmax,
    GridSoftmax,
    GumbelSoftmax,
    KMeans,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    RMSNorm,
    Rope,
    Softmax,
    Sparsemax,
    SwiGLU,
)
from volumetric.layers.conv import Conv
from volumetric.layers.conv_transpose import ConvTranspose

Fields = Mapping[str, Any]
Weights = Mapping[str, Array]
"""Parameter name → array."""

ACTIVATIONS: Final[dict[str, Activation]] = {
    "ReLU": "relu",
    "Silu": "silu",
    "GELU": "gelu_tanh",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Linear": "linear",
    "LeakyReLU": "leaky_relu",
}
_CONVOLUTIONS: Final[dict[str, type[Conv]]] = {"CNN1": Conv1d, "CNN2": Conv2d, "CNN3": Conv3d}
_TRANSPOSED: Final[dict[str, type[ConvTranspose]]] = {
    "ConvTransposed1D": ConvTranspose1d,
    "ConvTransposed2D": ConvTranspose2d,
    "ConvTransposed3D": ConvTranspose3d,
}
SIDES: Final = {1: ("height",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_GATES: Final = 4  # input, forget, cell, output: the order of both


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A layer as the engine's file tells it: our spec, and the shape of one row that it reads (None: any)."""

    spec: LayerSpec
    reads: Shape | None


def read_layer(kind: str, f: Fields, activation: Activation) -> Told:
    """Return our layer of one of the engine's. Raises `SpecError` or `UnsupportedError` if there is none."""
    if kind in _CONVOLUTIONS:
        return _spatial(_CONVOLUTIONS[kind], f, activation)
    if kind in _TRANSPOSED:
        return _spatial(_TRANSPOSED[kind], f, activation, output_padding=f.get("output_padding", 0))
    if kind == "Softmax":
        return _softmax(f)
    if kind in ("Embedding", "KMeans") and activation != "linear":
        raise UnsupportedError(f"a {kind} layer with an activation is not built here")
    return _READERS[kind](f, activation)


def _dense(f: Fields, activation: Activation) -> Told:
    spec = Dense(in_features=_size(f, "input_height"), out_features=_size(f, "output_height"), bias=False,
                 activation=activation)  # fmt: skip
    return Told(spec=spec, reads=(spec.in_features,))


def _attention(f: Fields, activation: Activation) -> Told:
    width, heads = _size(f, "d_model"), _size(f, "num_heads")
    head = f.get("head_dim") or width // heads
    base = f.get("rope_freq_base") or 0.0
    spec = MultiHeadAttention(
        embed_dim=width,
        num_heads=heads,
        num_kv_heads=f.get("num_kv_heads") or heads,
        head_dim=head,
        qkv_bias=True,
        out_bias=True,
        rope=Rope(dim=head, base=float(base)) if base > 0 else None,
    )
    return Told(spec=spec, reads=(width,))


def _swiglu(f: Fields, activation: Activation) -> Told:
    spec = SwiGLU(in_features=_size(f, "input_height"), hidden_features=_size(f, "output_height"), bias=True)
    return Told(spec=spec, reads=(spec.in_features,))


def _rms_norm(f: Fields, activation: Activation) -> Told:
    width = _size(f, "output_height" if f.get("output_height") else "input_height")
    return Told(spec=RMSNorm(num_features=width, eps=1e-6), reads=(width,))


def _layer_norm(f: Fields, activation: Activation) -> Told:
    width = _size(f, "output_height" if f.get("output_height") else "input_height")
    return Told(spec=LayerNorm(num_features=width, eps=1e-5), reads=(width,))


def _rnn(f: Fields, activation: Activation) -> Told:
    spec = RNN(input_size=_size(f, "input_height"), hidden_size=_size(f, "output_height"))
    return Told(spec=spec, reads=(spec.input_size,))


def _lstm(f: Fields, activation: Activation) -> Told:
    spec = LSTM(input_size=_size(f, "input_height"), hidden_size=_size(f, "output_height"))
    return Told(spec=spec, reads=(spec.input_size,))


def _embedding(f: Fields, activation: Activation) -> Told:
    spec = Embedding(num_embeddings=_size(f, "vocab_size"), embedding_dim=_size(f, "embedding_dim"))
    return Told(spec=spec, reads=())


def _kmeans(f: Fields, activation: Activation) -> Told:
    spec = KMeans(
        num_clusters=_size(f, "num_clusters"),
        in_features=_size(f, "input_height"),
        temperature=float(f.get("kmeans_temperature") or 1.0),
        output="features" if f.get("output_mode") == "features" else "probabilities",
    )
    return Told(spec=spec, reads=(spec.in_features,))


_READERS: Final[dict[str, Callable[[Fields, Activation], Told]]] = {
    "Dense": _dense,
    "MultiHeadAttention": _attention,
    "SwiGLU": _swiglu,
    "RMSNorm": _rms_norm,
    "LayerNorm": _layer_norm,
    "RNN": _rnn,
    "LSTM": _lstm,
    "Embedding": _embedding,
    "KMeans": _kmeans,
}


def _softmax(f: Fields) -> Told:
    kind, temperature = f.get("softmax_type") or "Standard", float(f.get("temperature") or 1.0)
    width = f.get("input_height") or 0
    reads = (width,) if width else None
    match kind:
        case "Standard" | "Temperature" | "Adaptive" | "Mixture":  # the engine computes the last two as the first
            return Told(spec=Softmax(temperature=temperature), reads=reads)
        case "Sparse":
            return Told(spec=Sparsemax(temperature=temperature), reads=reads)
        case "Entmax":
            return Told(spec=Entmax(temperature=temperature, alpha=float(f.get("entmax_alpha") or 1.5)), reads=reads)
        case "Gumbel":
            return Told(spec=GumbelSoftmax(temperature=temperature, seed=0), reads=reads)
        case "Grid":
            rows, cols = _size(f, "softmax_rows"), _size(f, "softmax_cols")
            return Told(spec=GridSoftmax(temperature=temperature, rows=rows, cols=cols), reads=reads)
    raise UnsupportedError(f"softmax of type {kind!r}: the file lacks its mask or levels")


def _spatial(cls: type[Conv] | type[ConvTranspose], f: Fields, activation: Activation, **more: Any) -> Told:
    spec = cls(
        in_channels=_size(f, "input_channels"),
        out_channels=_size(f, "filters"),
        kernel_size=_size(f, "kernel_size"),
        stride=f.get("stride") or 1,
        padding=f.get("padding") or 0,
        bias=False,
        activation=activation,
        **more,
    )
    sides = ("width",) if cls is ConvTranspose1d else SIDES[cls.spatial]
    sizes = tuple(_size(f, f"input_{side}") for side in sides)
    return Told(spec=spec, reads=(spec.in_channels, *sizes))


def _size(f: Fields, name: str) -> int:
    value = f.get(name, 0)
    if value < 1:
        raise SpecError(f"{name} must be above 0, got {value}")
    return value


def split_weights(spec: LayerSpec, flat: Array) -> dict[str, Array]:
    """Cut the engine's vector into the parameters of `spec`; what the vector lacks is missing."""
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
