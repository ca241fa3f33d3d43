"""Convolutional networks for sequences, images and volumes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, get_args

from volumetric.base._typing import ROWS, Shape
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.builders.sequential import chain
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Dense,
    Dropout,
    GroupNorm,
    LayerSpec,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    Reshape,
)
from volumetric.network import Network

CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)
_BATCH_NORMS = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
_POOLS = {"max": (MaxPool1d, MaxPool2d, MaxPool3d), "avg": (AvgPool1d, AvgPool2d, AvgPool3d)}
_GLOBAL = (AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d)
_GROUPS = 8
"""A group norm has ``gcd(channels, 8)`` groups."""

Norm = Literal["none", "batch", "group"]
Pooling = Literal["none", "max", "avg"]


@explain_call_errors
def cnn(
    shape: Shape,
    outputs: int,
    *,
    channels: tuple[int, ...] = (16, 32),
    kernel_size: int = 3,
    stride: int = 1,
    hidden: tuple[int, ...] = (),
    activation: Activation = "relu",
    norm: Norm = "none",
    pool: Pooling = "none",
    global_pool: bool = False,
    dropout: float = 0.0,
) -> Network:
    """Return a network of convolutions that keep the sizes (divided by `stride`), a flatten and a perceptron.

    Parameters
    ----------
    shape : shape of one sample: channels and one to three sizes, such as ``(1, 28, 28)``
    outputs : features at the end
    channels : output channels of each convolution, in order
    kernel_size, stride : of every convolution; the zero padding is half a kernel
    hidden : widths of Dense layers between the convolutions and the last one
    norm : norm between each convolution and its activation: over the batch, or over up to 8 groups of channels
    pool : pooling that halves the sizes after each convolution: the maximum or the mean of 2 elements along each axis
    global_pool : whether the perceptron reads the mean of each channel instead of all its elements
    dropout : probability that a feature is dropped before each Dense layer during training

    Raises
    ------
    SpecError, ShapeError
        `shape` has no or too many sizes, the sizes are too small for that many convolutions, or a name is unknown.
    """
    if not isinstance(shape, tuple | list) or not 2 <= len(shape) <= 4:
        raise SpecError(
            f"cnn: shape must have channels and one to three sizes, got {format_value(shape)}",
            hint="for a grey picture of 28 × 28 pixels: cnn((1, 28, 28), outputs)",
        )
    for name, value, known in (("norm", norm, Norm), ("pool", pool, Pooling)):
        if value not in get_args(known):
            raise SpecError(f"cnn: unknown {name} {value!r}", hint="use one of " + ", ".join(get_args(known)))
    axes = len(shape) - 2
    layers: list[LayerSpec] = []
    sizes: Shape = (ROWS, *shape)

    def add(layer: LayerSpec) -> None:
        nonlocal sizes
        sizes = layer.output_shape(sizes)
        layers.append(layer)

    for count in channels:
        convolution = CONVOLUTIONS[axes](
            in_channels=sizes[1],
            out_channels=count,
            kernel_size=kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            bias=norm == "none",
            activation=activation if norm == "none" else "linear",
        )
        for layer in (convolution, *_norm(norm, count, axes, activation)):
            add(layer)
        if pool != "none":
            add(_POOLS[pool][axes](kernel_size=2))
    if global_pool:
        add(_GLOBAL[axes](output_size=1))
    add(Reshape(shape=(-1,)))
    ends: tuple[Activation, ...] = (*(activation for _ in hidden), "linear")
    for size, end in zip((*hidden, outputs), ends, strict=True):
        if dropout:
            add(Dropout(p=dropout))
        add(Dense(in_features=sizes[1], out_features=size, activation=end))
    return chain(layers, shape)


def _norm(norm: Norm, channels: int, axes: int, activation: Activation) -> Iterator[LayerSpec]:
    """Yield the norm after a convolution, if `norm` names one; the norm applies the activation."""
    if norm == "batch":
        yield _BATCH_NORMS[axes](num_features=channels, activation=activation)
    elif norm == "group":
        yield GroupNorm(num_groups=math.gcd(channels, _GROUPS), num_channels=channels, activation=activation)
