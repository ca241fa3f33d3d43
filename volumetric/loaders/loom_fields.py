"""Our layers as the Go engine Loom writes them: the fields of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from volumetric._typing import Shape
from volumetric.errors import UnsupportedError
from volumetric.layers import (
    LSTM,
    RNN,
    ConvTranspose1d,
    Dense,
    Embedding,
    KMeans,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    RMSNorm,
    SwiGLU,
)
from volumetric.layers.base import fields_of
from volumetric.layers.conv import Conv, Spatial
from volumetric.layers.conv_transpose import ConvTranspose
from volumetric.layers.softmax import AxisSoftmax
from volumetric.loaders.loom_layers import ACTIVATIONS, SIDES

_NAMES: Final = {ours: theirs for theirs, ours in ACTIVATIONS.items()}


def write_layer(spec: LayerSpec, row_in: Shape, row_out: Shape) -> tuple[str, str, dict[str, Any]]:
    """Return type, activation and further fields of a layer that reads and makes rows of these shapes.

    Raises
    ------
    UnsupportedError
        The engine has no such layer, or not with these fields.
    """
    if isinstance(spec, Spatial):
        return _spatial(spec, row_in, row_out)
    if isinstance(spec, AxisSoftmax):
        return _softmax(spec, row_in)
    for kind, (name, write) in _WRITERS.items():
        if isinstance(spec, kind):
            activation = _NAMES.get(spec.activation) if isinstance(spec, Dense) else "Linear"
            if activation is None:
                raise UnsupportedError(f"the Go engine has no activation {fields_of(spec)['activation']!r}")
            return name, activation, cast("Callable[[Any], dict[str, Any]]", write)(spec)
    raise UnsupportedError(f"the Go engine has no layer {spec.kind!r}")


def _expect(spec: LayerSpec, **values: Any) -> None:
    """Raise `UnsupportedError` unless the fields have these values, the only ones that the engine computes."""
    for name, value in values.items():
        found = getattr(spec, name)
        if found != value:
            raise UnsupportedError(f"{spec.kind}: the Go engine has {name} {value!r} alone, this layer {found!r}")


def _dense(spec: Dense) -> dict[str, Any]:
    return {"input_height": spec.in_features, "output_height": spec.out_features}


def _attention(spec: MultiHeadAttention) -> dict[str, Any]:
    _expect(spec, causal=True, window=None, chunk=None, softcap=None, scale=None, qk_norm=False)
    _expect(spec, sinks=False, temperature_scale=0.0)
    rope = spec.rope
    if rope is not None and (rope.scaling != "none" or rope.dim != spec.width):
        raise UnsupportedError(f"{spec.kind}: the Go engine turns whole heads, without scaling of positions")
    if spec.num_heads * spec.width != spec.embed_dim:
        raise UnsupportedError(f"{spec.kind}: the Go engine's heads are as wide as the layer together")
    return {
        "input_height": spec.embed_dim,
        "output_height": spec.embed_dim,
        "num_heads": spec.num_heads,
        "num_kv_heads": spec.kv_heads,
        "head_dim": spec.width,
        "d_model": spec.embed_dim,
        "rope_freq_base": 0 if rope is None else rope.base,
    }


def _swiglu(spec: SwiGLU) -> dict[str, Any]:
    _expect(spec, activation="silu", gate_factor=1.0, limit=None)
    return {"input_height": spec.in_features, "output_height": spec.hidden_features}


def _rms_norm(spec: RMSNorm) -> dict[str, Any]:
    _expect(spec, eps=1e-6, unit_offset=False)
    return {"input_height": spec.num_features, "output_height": spec.num_features}


def _layer_norm(spec: LayerNorm) -> dict[str, Any]:
    _expect(spec, eps=1e-5)
    return {"input_height": spec.num_features, "output_height": spec.num_features}


def _rnn(spec: RNN) -> dict[str, Any]:
    _expect(spec, nonlinearity="tanh")
    return {"input_height": spec.input_size, "output_height": spec.hidden_size}


def _lstm(spec: LSTM) -> dict[str, Any]:
    return {"input_height": spec.input_size, "output_height": spec.hidden_size}


def _embedding(spec: Embedding) -> dict[str, Any]:
    _expect(spec, scale=1.0)
    return {"vocab_size": spec.num_embeddings, "embedding_dim": spec.embedding_dim}


def _kmeans(spec: KMeans) -> dict[str, Any]:
    made = spec.num_clusters if spec.output == "probabilities" else spec.in_features
    return {
        "input_height": spec.in_features,
        "output_height": made,
        "num_clusters": spec.num_clusters,
        "kmeans_temperature": spec.temperature,
        "output_mode": spec.output,
    }


_WRITERS: Final[dict[type[LayerSpec], tuple[str, Callable[..., dict[str, Any]]]]] = {
    Dense: ("Dense", _dense),
    MultiHeadAttention: ("MultiHeadAttention", _attention),
    SwiGLU: ("SwiGLU", _swiglu),
    RMSNorm: ("RMSNorm", _rms_norm),
    LayerNorm: ("LayerNorm", _layer_norm),
    RNN: ("RNN", _rnn),
    LSTM: ("LSTM", _lstm),
    Embedding: ("Embedding", _embedding),
    KMeans: ("KMeans", _kmeans),
}


def _softmax(spec: AxisSoftmax, row_in: Shape) -> tuple[str, str, dict[str, Any]]:
    _expect(spec, axis=-1)
    f = fields_of(spec)
    known: dict[str, tuple[str, dict[str, Any]]] = {
        "softmax": ("Standard", {}),
        "sparsemax": ("Sparse", {}),
        "entmax": ("Entmax", {"entmax_alpha": f.get("alpha")}),
        "gumbel_softmax": ("Gumbel", {"gumbel_noise": True}),
        "grid_softmax": ("Grid", {"softmax_rows": f.get("rows"), "softmax_cols": f.get("cols")}),
    }
    if spec.kind not in known:
        raise UnsupportedError(f"the Go engine's file has no {spec.kind}")
    kind, more = known[spec.kind]
    width = row_in[-1]
    temperature = {} if spec.temperature == 1 else {"temperature": spec.temperature}
    fields = {"input_height": width, "output_height": width, "softmax_type": kind, **temperature, **more}
    return "Softmax", "Linear", fields


def _spatial(spec: Spatial, row_in: Shape, row_out: Shape) -> tuple[str, str, dict[str, Any]]:
    _expect(spec, groups=1)
    windows = spec.windows()
    square = {name: set(getattr(windows, name)) for name in ("kernel", "stride", "before", "after")}
    if any(len(values) > 1 for values in square.values()) or set(windows.dilation) != {1}:
        raise UnsupportedError(f"{spec.kind}: the Go engine's kernels are the same along all axes, without dilation")
    if windows.before != windows.after:
        raise UnsupportedError(f"{spec.kind}: the Go engine puts as many zeros before as behind")
    activation = _NAMES.get(spec.activation)
    if activation is None:
        raise UnsupportedError(f"the Go engine has no activation {spec.activation!r}")
    sides = SIDES[spec.spatial]
    named = [*zip(sides, row_in[1:], row_out[1:], strict=True)]
    if isinstance(spec, ConvTranspose1d):
        named.append(("width", row_in[1], row_out[1]))  # where its forward looks
    fields: dict[str, Any] = {f"input_{side}": size for side, size, _ in named}
    fields |= {f"output_{side}": size for side, _, size in named}
    fields |= {"input_channels": spec.in_channels, "filters": spec.out_channels, "kernel_size": windows.kernel[0]}
    fields |= {"stride": windows.stride[0], "padding": windows.before[0]}
    if isinstance(spec, Conv):
        return f"CNN{spec.spatial}", activation, fields
    more = set(cast("ConvTranspose", spec).along("output_padding", 0))
    if len(more) > 1:
        raise UnsupportedError(f"{spec.kind}: the Go engine's output padding is the same along all axes")
    return f"ConvTransposed{spec.spatial}D", activation, {**fields, "output_padding": more.pop()}
