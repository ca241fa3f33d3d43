"""Layers of the Go engine Loom: read and write the JSON fields of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError, UnsupportedError
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
from volumetric.layers.conv import Conv, Spatial
from volumetric.layers.conv_transpose import ConvTranspose
from volumetric.layers.layer_spec import fields_of
from volumetric.layers.softmax import AxisSoftmax

Fields = Mapping[str, Any]

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
_NAMES: Final = {ours: theirs for theirs, ours in ACTIVATIONS.items()}


class SizedLayerForm(NamedTuple):
    """A layer for which files have only sizes.

    Attributes
    ----------
    sizes : our field → the engine's fields; all are written, the first that is not 0 is read
    computed : fixed values in the engine, the only ones that our fields may have
    read_fields : values of further fields of a layer that is read
    """

    cls: type[Any]
    sizes: Mapping[str, tuple[str, ...]]
    computed: Mapping[str, Any] = MappingProxyType({})
    read_fields: Mapping[str, Any] = MappingProxyType({})


_IN, _OUT = ("input_height",), ("output_height",)
_SIZED: Final[Mapping[str, SizedLayerForm]] = {
    "Dense": SizedLayerForm(Dense, {"in_features": _IN, "out_features": _OUT}, read_fields={"bias": False}),
    "SwiGLU": SizedLayerForm(
        SwiGLU,
        {"in_features": _IN, "hidden_features": _OUT},
        {"activation": "silu", "gate_factor": 1.0, "limit": None},
        read_fields={"bias": True},
    ),
    "RMSNorm": SizedLayerForm(RMSNorm, {"num_features": (*_OUT, *_IN)}, {"eps": 1e-6, "unit_offset": False}),
    "LayerNorm": SizedLayerForm(LayerNorm, {"num_features": (*_OUT, *_IN)}, {"eps": 1e-5}),
    "RNN": SizedLayerForm(RNN, {"input_size": _IN, "hidden_size": _OUT}, {"nonlinearity": "tanh"}),
    "LSTM": SizedLayerForm(LSTM, {"input_size": _IN, "hidden_size": _OUT}),
    "Embedding": SizedLayerForm(
        Embedding, {"num_embeddings": ("vocab_size",), "embedding_dim": ("embedding_dim",)}, {"scale": 1.0}
    ),
}
"""The engine's name of a layer → conversion of its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoomLayer:
    """A layer from the engine's file: our spec, and the shape of one input row (None: any)."""

    spec: LayerSpec
    reads: Shape | None


def read_layer(kind: str, f: Fields, activation: Activation) -> LoomLayer:
    """Convert a layer of the engine to ours. Raises `SpecError` or `UnsupportedError` if there is no equivalent."""
    if kind in _CONVOLUTIONS:
        return _read_spatial(_CONVOLUTIONS[kind], f, activation)
    if kind in _TRANSPOSED:
        return _read_spatial(_TRANSPOSED[kind], f, activation, output_padding=f.get("output_padding", 0))
    if kind == "Softmax":
        return _read_softmax(f)
    if kind in ("Embedding", "KMeans") and activation != "linear":
        raise UnsupportedError(f"a {kind} layer with an activation is not supported")
    if kind == "MultiHeadAttention":
        return _read_attention(f)
    return _read_kmeans(f) if kind == "KMeans" else _read_sized(kind, f, activation)


def _read_attention(f: Fields) -> LoomLayer:
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
    return LoomLayer(spec=spec, reads=(width,))


def _read_kmeans(f: Fields) -> LoomLayer:
    spec = KMeans(
        num_clusters=_size(f, "num_clusters"),
        in_features=_size(f, "input_height"),
        temperature=float(f.get("kmeans_temperature") or 1.0),
        output="features" if f.get("output_mode") == "features" else "probabilities",
    )
    return LoomLayer(spec=spec, reads=(spec.in_features,))


def _read_softmax(f: Fields) -> LoomLayer:
    kind, temperature = f.get("softmax_type") or "Standard", float(f.get("temperature") or 1.0)
    width = f.get("input_height") or 0
    reads = (width,) if width else None
    match kind:
        case "Standard" | "Temperature" | "Adaptive" | "Mixture":  # the engine computes the last two like the first
            return LoomLayer(spec=Softmax(temperature=temperature), reads=reads)
        case "Sparse":
            return LoomLayer(spec=Sparsemax(temperature=temperature), reads=reads)
        case "Entmax":
            return LoomLayer(
                spec=Entmax(temperature=temperature, alpha=float(f.get("entmax_alpha") or 1.5)), reads=reads
            )
        case "Gumbel":
            return LoomLayer(spec=GumbelSoftmax(temperature=temperature, seed=0), reads=reads)
        case "Grid":
            rows, cols = _size(f, "softmax_rows"), _size(f, "softmax_cols")
            return LoomLayer(spec=GridSoftmax(temperature=temperature, rows=rows, cols=cols), reads=reads)
    raise UnsupportedError(f"softmax of type {kind!r}: the file lacks its mask or levels")


def _read_spatial(cls: type[Conv] | type[ConvTranspose], f: Fields, activation: Activation, **more: Any) -> LoomLayer:
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
    return LoomLayer(spec=spec, reads=(spec.in_channels, *sizes))


def _read_sized(kind: str, f: Fields, activation: Activation) -> LoomLayer:
    form = _SIZED[kind]
    sizes = {ours: _size(f, next((n for n in theirs if f.get(n)), theirs[-1])) for ours, theirs in form.sizes.items()}
    own = {"activation": activation} if kind == "Dense" else {}
    spec = form.cls(**sizes, **form.computed, **form.read_fields, **own)
    return LoomLayer(spec=spec, reads=() if kind == "Embedding" else (next(iter(sizes.values())),))


def _size(f: Fields, name: str) -> int:
    value = f.get(name, 0)
    if value < 1:
        raise SpecError(f"{name} must be above 0, got {value}")
    return value


def write_layer(spec: LayerSpec, row_in: Shape, row_out: Shape) -> tuple[str, str, dict[str, Any]]:
    """Return type, activation and further fields of a layer with these shapes of input and output rows.

    Raises
    ------
    UnsupportedError
        The engine lacks the layer, or these values of its fields.
    """
    if isinstance(spec, Spatial):
        return _write_spatial(spec, row_in, row_out)
    if isinstance(spec, AxisSoftmax):
        return _write_softmax(spec, row_in)
    if isinstance(spec, MultiHeadAttention):
        return "MultiHeadAttention", "Linear", _write_attention(spec)
    if isinstance(spec, KMeans):
        return "KMeans", "Linear", _write_kmeans(spec)
    for kind, form in _SIZED.items():
        if isinstance(spec, form.cls):
            _expect(spec, **form.computed)
            activation = _NAMES.get(spec.activation) if isinstance(spec, Dense) else "Linear"
            if activation is None:
                raise UnsupportedError(f"the Go engine has no activation {fields_of(spec)['activation']!r}")
            return kind, activation, {name: getattr(spec, own) for own, every in form.sizes.items() for name in every}
    raise UnsupportedError(f"the Go engine has no layer {spec.kind!r}")


def _expect(spec: LayerSpec, **values: Any) -> None:
    """Raise `UnsupportedError` unless the fields have these values, the only ones that the engine supports."""
    for name, value in values.items():
        actual = getattr(spec, name)
        if actual != value:
            raise UnsupportedError(
                f"{spec.kind}: the Go engine supports only {name} {value!r}, this layer has {actual!r}"
            )


def _write_attention(spec: MultiHeadAttention) -> dict[str, Any]:
    _expect(spec, causal=True, window=None, chunk=None, softcap=None, scale=None, qk_norm=False)
    _expect(spec, sinks=False, temperature_scale=0.0)
    rope = spec.rope
    if rope is not None and (rope.scaling != "none" or rope.dim != spec.width):
        raise UnsupportedError(f"{spec.kind}: the Go engine rotates only whole heads, without RoPE scaling")
    if spec.num_heads * spec.width != spec.embed_dim:
        raise UnsupportedError(f"{spec.kind}: the Go engine's heads must have the width of the layer in total")
    return {
        "input_height": spec.embed_dim,
        "output_height": spec.embed_dim,
        "num_heads": spec.num_heads,
        "num_kv_heads": spec.kv_heads,
        "head_dim": spec.width,
        "d_model": spec.embed_dim,
        "rope_freq_base": 0 if rope is None else rope.base,
    }


def _write_kmeans(spec: KMeans) -> dict[str, Any]:
    outputs = spec.num_clusters if spec.output == "probabilities" else spec.in_features
    return {
        "input_height": spec.in_features,
        "output_height": outputs,
        "num_clusters": spec.num_clusters,
        "kmeans_temperature": spec.temperature,
        "output_mode": spec.output,
    }


def _write_softmax(spec: AxisSoftmax, row_in: Shape) -> tuple[str, str, dict[str, Any]]:
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


def _write_spatial(spec: Spatial, row_in: Shape, row_out: Shape) -> tuple[str, str, dict[str, Any]]:
    _expect(spec, groups=1)
    windows = spec.windows()
    square = {name: set(getattr(windows, name)) for name in ("kernel", "stride", "before", "after")}
    if any(len(values) > 1 for values in square.values()) or set(windows.dilation) != {1}:
        raise UnsupportedError(f"{spec.kind}: the Go engine's kernels must be equal along all axes, without dilation")
    if windows.before != windows.after:
        raise UnsupportedError(f"{spec.kind}: the Go engine's padding must be equal before and after")
    activation = _NAMES.get(spec.activation)
    if activation is None:
        raise UnsupportedError(f"the Go engine has no activation {spec.activation!r}")
    sides = SIDES[spec.spatial]
    named = [*zip(sides, row_in[1:], row_out[1:], strict=True)]
    if isinstance(spec, ConvTranspose1d):
        named.append(("width", row_in[1], row_out[1]))  # where its forward pass reads it
    fields: dict[str, Any] = {f"input_{side}": size for side, size, _ in named}
    fields |= {f"output_{side}": size for side, _, size in named}
    fields |= {"input_channels": spec.in_channels, "filters": spec.out_channels, "kernel_size": windows.kernel[0]}
    fields |= {"stride": windows.stride[0], "padding": windows.before[0]}
    if isinstance(spec, Conv):
        return f"CNN{spec.spatial}", activation, fields
    more = set(cast("ConvTranspose", spec).along("output_padding", 0))
    if len(more) > 1:
        raise UnsupportedError(f"{spec.kind}: the Go engine's output padding must be equal along all axes")
    return f"ConvTransposed{spec.spatial}D", activation, {**fields, "output_padding": more.pop()}
