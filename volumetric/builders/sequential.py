"""Chains of layers, and the multi-layer perceptron built from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from volumetric.base._typing import Shape
from volumetric.base.call_errors import explain_call_errors
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Dense, LayerSpec
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid


@explain_call_errors
def chain(
    layers: Sequence[LayerSpec], input_shape: Shape, input_dtype: Literal["int32", "float32"] = "float32"
) -> Network:
    """Return a network that runs `layers` in order, one in each plane of the grid.

    Parameters
    ----------
    layers : from input to output, at least one
    input_shape : shape of one row of input
    input_dtype : ``"int32"`` for token ids

    Raises
    ------
    SpecError, ShapeError
        `layers` is empty, or a layer cannot read the output of the layer before it.
    """
    return Network(
        grid=Grid(max(len(layers), 1)),
        layers={Coord(z): spec for z, spec in enumerate(layers)},
        input_shape=tuple(input_shape),
        input_dtype=input_dtype,
    )


@explain_call_errors
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

    The hidden layers use `activation`, the last layer `output_activation`. If `hidden` is a number, there is one hidden
    layer.

    Raises
    ------
    SpecError
        A width is below 1, or an activation is unknown.
    """
    hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    widths = (inputs, *hidden, outputs)
    kinds: tuple[Activation, ...] = (*(activation for _ in hidden), output_activation)
    layers = [
        Dense(in_features=a, out_features=b, activation=kind, bias=bias)
        for a, b, kind in zip(widths, widths[1:], kinds, strict=False)
    ]
    return chain(layers, (inputs,))
