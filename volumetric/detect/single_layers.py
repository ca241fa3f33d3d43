"""Single layers: recognise a module by the names and shapes of its own tensors."""

from __future__ import annotations

from math import prod

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.detect.findings import Finding
from volumetric.detect.module_tree import ModuleNode
from volumetric.detect.parameter_fills import ParameterFill, transposed_fill, verbatim_fill
from volumetric.detect.recurrent_layers import recurrent
from volumetric.detect.spellings import (
    BATCH_NORM,
    EMBEDDING,
    GROUPED_NORM,
    INPUT_SIDE,
    POSITIONS,
    TRANSPOSED_CONVOLUTION,
)
from volumetric.layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Dense,
    Embedding,
    LayerNorm,
    PositionEmbedding,
    RMSNorm,
)

CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)
BATCH_NORMS = (BatchNorm1d, BatchNorm2d, BatchNorm3d)


def single_layer(node: ModuleNode) -> Finding | None:
    """Recognise a module without child modules."""
    for attempt in (recurrent, _batch_norm, _keras_embedding, _kernel, _norm, _weight):
        try:
            finding = attempt(node)
        except SpecError:  # sizes that no layer has
            continue
        if finding is not None:
            return finding
    return None


def _batch_norm(node: ModuleNode) -> Finding | None:
    own = {role: next((n for n in names if n in node.tensors), None) for role, names in BATCH_NORM.items()}
    if own["running_mean"] is None or own["running_var"] is None:
        return None
    shapes = {node.tensors[name].shape for name in own.values() if name is not None}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        return None
    (channels,) = next(iter(shapes))
    affine = own["weight"] is not None and own["bias"] is not None
    counted = [node.tensors[n].name for n in ("num_batches_tracked",) if n in node.tensors]
    fills = {role: verbatim_fill(node.tensors[name].name) for role, name in own.items() if name is not None}
    return Finding(
        path=node.path,
        what=f"batch norm of {channels} channels",
        reason="running mean and variance",
        tensors=(*(fill.tensors[0] for fill in fills.values()), *counted),
        layer=BatchNorm2d(num_features=channels, affine=affine) if channels else None,
        fills=fills,
    )


def _keras_embedding(node: ModuleNode) -> Finding | None:
    shape = node.shape("embeddings")
    if shape is None or len(shape) != 2 or not prod(shape):
        return None
    return _embedding(node, "embeddings", shape, "Keras' name")


def _embedding(node: ModuleNode, name: str, shape: Shape, reason: str) -> Finding:
    rows, width = shape
    positions = POSITIONS.search(node.path) is not None
    kind = PositionEmbedding if positions else Embedding
    return Finding(
        path=node.path,
        what=f"{'position ' if positions else ''}embedding {rows} × {width}",
        reason=reason,
        tensors=(node.tensors[name].name,),
        layer=kind(num_embeddings=rows, embedding_dim=width),
        fills={"weight": verbatim_fill(node.tensors[name].name)},
    )


def _kernel(node: ModuleNode) -> Finding | None:
    """Keras' Dense and Conv, whose kernels have the input axis first."""
    for name in ("depthwise_kernel", "kernel"):
        shape = node.shape(name)
        if shape is None or not prod(shape) or not 2 <= len(shape) <= 5:
            continue
        bias = node.shape("bias")
        full = node.tensors[name].name
        if len(shape) == 2:
            if bias not in (None, shape[1:]):
                return None
            layer = Dense(in_features=shape[0], out_features=shape[1], bias=bias is not None)
            fills = {"weight": transposed_fill(full)} | _bias(node)
            return _weight_finding(
                node, f"linear {shape[0]} → {shape[1]}", "Keras' kernel, input axis first", layer, fills
            )
        *taps, ins, outs = shape
        if name == "depthwise_kernel":
            groups, shown = ins, f"{ins} channels, depthwise"
            outs *= ins
        else:
            groups, shown = 1, f"{ins} → {outs}"
        if bias not in (None, (outs,)):
            return None
        kind = CONVOLUTIONS[len(taps) - 1]
        layer = kind(in_channels=ins, out_channels=outs, kernel_size=tuple(taps), groups=groups, bias=bias is not None)
        order = (len(taps), len(taps) + 1) if groups > 1 else (len(taps) + 1, len(taps))
        target = (outs, ins // groups, *taps)
        make = _transpose_kernel((*order, *range(len(taps))), target)
        what = f"{kind.__name__} {shown}, {'×'.join(map(str, taps))}"
        return _weight_finding(
            node, what, f"Keras' {name}, taps first", layer, {"weight": ParameterFill((full,), make)} | _bias(node)
        )
    return None


def _transpose_kernel(order: tuple[int, ...], shape: Shape):
    return lambda kernel: kernel.transpose(order).reshape(shape)


def _norm(node: ModuleNode) -> Finding | None:
    """Norm with gains of one axis: LayerNorm with a bias, RMSNorm without."""
    gain = next((n for n in ("weight", "gamma", "scale", "g") if len(node.shape(n) or ()) == 1), None)
    if gain is None or set(node.tensors) - {gain, "bias", "beta", "b"}:
        return None
    (width,) = node.tensors[gain].shape
    bias = next((n for n in ("bias", "beta", "b") if n in node.tensors), None)
    if not width or (bias is not None and node.shape(bias) != (width,)):
        return None
    names = tuple(node.tensors[name].name for name in (gain, bias) if name is not None)
    if GROUPED_NORM.search(node.path):
        reason = "gains by channel; no tensor shows the number of groups"
        return Finding(path=node.path, what=f"group norm of {width} channels", reason=reason, tensors=names)
    fills = {"weight": verbatim_fill(names[0])} | ({"bias": verbatim_fill(names[1])} if bias is not None else {})
    layer = LayerNorm(num_features=width) if bias is not None else RMSNorm(num_features=width)
    reason = "gains and biases of one axis" if bias is not None else "gains of one axis and no biases"
    what = f"{'LayerNorm' if bias is not None else 'RMSNorm'} of {width}"
    return Finding(
        path=node.path, what=what, certainty="likely", reason=reason, tensors=names, layer=layer, fills=fills
    )


def _weight(node: ModuleNode) -> Finding | None:
    """A ``weight`` of two axes or more in torch's layout: embedding, linear layer or convolution."""
    shape = node.shape("weight")
    if shape is None or not prod(shape) or not 2 <= len(shape) <= 5 or set(node.tensors) - {"weight", "bias"}:
        return None
    bias, full = node.shape("bias"), node.tensors["weight"].name
    if len(shape) == 2:
        if bias is None and (EMBEDDING.search(node.path) or POSITIONS.search(node.path)):
            return _embedding(node, "weight", shape, "its name")
        if node.path.rpartition(".")[2] in INPUT_SIDE and bias == shape[1:]:
            layer = Dense(in_features=shape[0], out_features=shape[1])
            fills = {"weight": transposed_fill(full)} | _bias(node)
            return _weight_finding(
                node, f"linear {shape[0]} → {shape[1]}", "GPT-2's name, input axis first", layer, fills
            )
        if bias not in (None, shape[:1]):
            return None
        layer = Dense(in_features=shape[1], out_features=shape[0], bias=bias is not None)
        fills = {"weight": verbatim_fill(full)} | _bias(node)
        return _weight_finding(node, f"linear {shape[1]} → {shape[0]}", "a matrix, output axis first", layer, fills)
    outs, ins, *taps = shape
    size = "×".join(map(str, taps))
    if TRANSPOSED_CONVOLUTION.search(node.path):
        reason = "its name says transposed; no tensor shows its stride"
        names = tuple(entry.name for entry in node.tensors.values())
        what = f"transposed convolution {outs} → {ins}, {size}"
        return Finding(path=node.path, what=what, certainty="likely", reason=reason, tensors=names)
    if bias not in (None, shape[:1]):
        return None
    kind = CONVOLUTIONS[len(taps) - 1]
    # One input channel for each filter means a depthwise convolution, or grey images: the caller that places it knows.
    depthwise = ins == 1 and outs > 1
    layer = kind(in_channels=ins, out_channels=outs, kernel_size=tuple(taps), bias=bias is not None)
    fills = {"weight": verbatim_fill(full)} | _bias(node)
    what = f"{kind.__name__} " + (f"{outs} filters of one channel" if depthwise else f"{ins} → {outs}") + f", {size}"
    return _weight_finding(node, what, f"a kernel of {len(taps)} axes, filters first", layer, fills)


def _bias(node: ModuleNode) -> dict[str, ParameterFill]:
    return {"bias": verbatim_fill(node.tensors["bias"].name)} if "bias" in node.tensors else {}


def _weight_finding(
    node: ModuleNode, what: str, reason: str, layer: Dense | Conv1d | Conv2d | Conv3d, fills: dict[str, ParameterFill]
):
    names = tuple(name for fill in fills.values() for name in fill.tensors)
    return Finding(path=node.path, what=what, reason=reason, tensors=names, layer=layer, fills=fills)
