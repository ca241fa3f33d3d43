"""Layers one behind the other, and the multi-layer perceptron made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from volumetric.base._typing import Shape
from volumetric.base.keywords import explained
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Dense, LayerSpec
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid


@explained
def chain(
    layers: Sequence[LayerSpec], input_shape: Shape, input_dtype: Literal["int32", "float32"] = "float32"
) -> Network:
    """Return `layers` one behind the other, one to a plane of the grid.

    Parameters
    ----------
    layers : from input to output, at least one
    input_shape : shape of one row of input
    input_dtype : ``"int32"`` for token ids

    Raises
    ------
    SpecError, ShapeError
        There is no layer, or one does not read what the one before makes.
    """
    return Network(
        grid=Grid(max(len(layers), 1)),
        layers={Coord(z): spec for z, spec in enumerate(layers)},
        input_shape=tuple(input_shape),
        input_dtype=input_dtype,
    )


@explained
def sequential(
    inputs: int,
    outputs: int,
    *,
    hidden: int | tuple[int, ...] = (32,),
    activation: Activation = "relu",
    output_activation: Activation = "linear",
    bias: bool = True,
) -> Network:
    """Return a multi-layer perceptron: `inputs` features, Dense layers of the widths `hidden`, `outputs` features.

    The hidden layers have `activation`, the last one `output_activation`. A number as `hidden` is the width of one.

    Raises
    ------
    SpecError
        A width is below 1, or an activation unknown.
    """
    hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    widths = (inputs, *hidden, outputs)
    kinds: tuple[Activation, ...] = (*(activation for _ in hidden), output_activation)
    layers = [
        Dense(in_features=a, out_features=b, activation=kind, bias=bias)
        for a, b, kind in zip(widths, widths[1:], kinds, strict=False)
    ]
    return chain(layers, (inputs,))
