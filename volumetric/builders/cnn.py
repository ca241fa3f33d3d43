"""Convolutional networks for sequences, images and volumes."""

from __future__ import annotations

import math

from volumetric._typing import ROWS, Shape
from volumetric.builders.chain import chain
from volumetric.errors import SpecError
from volumetric.layers import Conv1d, Conv2d, Conv3d, Dense, LayerSpec, Reshape
from volumetric.layers.activations import Activation
from volumetric.network import Network

CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)


def cnn(
    shape: Shape,
    outputs: int,
    *,
    channels: tuple[int, ...] = (16, 32),
    kernel_size: int = 3,
    stride: int = 1,
    hidden: tuple[int, ...] = (),
    activation: Activation = "relu",
) -> Network:
    """Return convolutions that keep the sizes (divided by `stride`), flattened into a perceptron.

    Parameters
    ----------
    shape : of one sample: channels and one to three sizes, as ``(1, 28, 28)``
    outputs : features at the end
    channels : of each convolution, in order
    kernel_size, stride : of every convolution; zeros of half a kernel go around
    hidden : widths of Dense layers between the convolutions and the last one

    Raises
    ------
    SpecError, ShapeError
        `shape` has no or too many sizes, or the sizes do not last for so many convolutions.
    """
    if not 2 <= len(shape) <= 4:
        raise SpecError(f"cnn: a sample has channels and one to three sizes, got shape {list(shape)}")
    convolution = CONVOLUTIONS[len(shape) - 2]
    layers: list[LayerSpec] = []
    sizes: Shape = (ROWS, *shape)
    for count in channels:
        layer = convolution(
            in_channels=sizes[1],
            out_channels=count,
            kernel_size=kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            activation=activation,
        )
        sizes = layer.output_shape(sizes)
        layers.append(layer)
    layers.append(Reshape(shape=(-1,)))
    width = math.prod(sizes[1:])
    for size in hidden:
        layers.append(Dense(in_features=width, out_features=size, activation=activation))
        width = size
    layers.append(Dense(in_features=width, out_features=outputs))
    return chain(layers, shape)
