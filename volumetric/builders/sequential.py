"""Chains of layers: of layers that are passed, and of Dense layers of some widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from volumetric.base._typing import ROWS, Shape
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import ArgumentError, SpecError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Dense, Embedding, LayerSpec
from volumetric.layers.layer_spec import show_shape
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.wiring import width_by_weights


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
    *parts: int | Sequence[int] | Sequence[LayerSpec] | LayerSpec,
    inputs: int | None = None,
    outputs: int | None = None,
    hidden: int | Sequence[int] | None = None,
    activation: Activation | None = "relu",
    output_activation: Activation | None = "linear",
    bias: bool = True,
) -> Network:
    """Return a network of layers in a row, from widths and layers: ``sequential(2, 8, 1, activation="tanh")``.

    The first width is that of the input; each further one adds a Dense layer of so many outputs. The last of these
    uses `output_activation`, the others `activation`. Layers may stand among the widths.

    Parameters
    ----------
    parts : widths and layers. The first may also be the shape of a sample, such as ``(1, 28, 28)``, or a layer with
        weights, whose width is then that of the input (an `Embedding` reads token ids)
    inputs, outputs : the first and the last width, by name
    hidden : width, or widths, between the two: ``sequential(2, 1, hidden=8)`` is ``sequential(2, 8, 1)``
    activation : activation of Dense layers from widths; None: linear
    output_activation : activation of the last of them
    bias : whether they have biases

    Raises
    ------
    SpecError
        A width is below 1, an activation is unknown, or the width of the input is not known.
    ShapeError
        A layer cannot read the output of the layer before it.

    Examples
    --------
    >>> from volumetric.layers import Conv2d, Dense, Flatten
    >>> [str(spec.activation) for spec in sequential(2, 8, 8, 1, activation="tanh").layers.values()]
    ['tanh', 'tanh', 'linear']
    >>> len(sequential(2, Dense(2, 8, "tanh"), 1).layers)
    2
    >>> image = sequential((1, 28, 28), Conv2d(1, 4, 3, activation="relu"), Flatten(), 10)
    >>> image.shapes[image.taps["output"]][1:]
    (10,)
    """
    chosen = [*([] if inputs is None else [inputs]), *parts, *([] if outputs is None else [outputs])]
    if hidden is not None:
        if len(chosen) != 2:
            raise ArgumentError(
                f"sequential: hidden stands between inputs and outputs, got {len(chosen)} widths and layers beside it",
                hint="write sequential(2, 1, hidden=(8, 8)), or all widths in order: sequential(2, 8, 8, 1)",
            )
        chosen[1:1] = [hidden] if isinstance(hidden, int) else hidden
    match chosen:
        case [[*listed]] if any(isinstance(part, LayerSpec) for part in listed):
            chosen = listed  # a list of layers, as Keras takes it
        case _:
            pass
    if not chosen:
        raise ArgumentError("sequential needs widths or layers", hint="for example sequential(2, 8, 1)")
    first, rest = chosen[0], chosen[1:]
    if isinstance(first, LayerSpec):
        shape, rest = _shape_read_by(first), chosen
    else:
        shape = (first,) if isinstance(first, int) else tuple(first)
    ids = isinstance(rest[0], Embedding) and isinstance(first, LayerSpec) if rest else False
    widths = [i for i, part in enumerate(rest) if not isinstance(part, LayerSpec)]
    layers: list[LayerSpec] = []
    row: Shape = (ROWS, *shape)
    for i, part in enumerate(rest):
        if not isinstance(part, LayerSpec):
            kind = output_activation if i == widths[-1] else activation
            part = _dense(row, part, kind, bias=bias)
        layers.append(part)
        if i + 1 < len(rest):
            row = part.output_shape(row)
    if not layers:
        raise ArgumentError(
            f"sequential: {first} is the shape of the input; the layers are missing",
            hint="pass widths one by one: sequential(2, 8, 1)",
        )
    return chain(layers, shape, "int32" if ids else "float32")


def sequential_of_data(
    inputs: int,
    outputs: int,
    *,
    hidden: int | tuple[int, ...] = (32,),
    activation: Activation = "relu",
    output_activation: Activation = "linear",
    bias: bool = True,
) -> Network:
    """Return the `sequential` network for a data set: `inputs` features, `outputs` features, `hidden` between them."""
    return sequential(
        inputs, outputs, hidden=hidden, activation=activation, output_activation=output_activation, bias=bias
    )


def _dense(row: Shape, width: object, activation: Activation | None, *, bias: bool) -> Dense:
    """Return the Dense layer for a width after an output of shape `row`."""
    if not isinstance(width, int):
        raise ArgumentError(
            f"sequential: expected a width or a layer, got {width!r:.60}",
            hint="only the first one may be a shape; layers are made before they are passed, as Flatten()",
        )
    if len(row) != 2:
        raise SpecError(
            f"sequential: the width {width} is for rows of features, but reads {show_shape(row)}",
            hint="put Flatten() before it",
        )
    return Dense(row[-1], width, activation, bias=bias)


def _shape_read_by(spec: LayerSpec) -> Shape:
    """Return the shape of a row that the first layer reads."""
    if isinstance(spec, Embedding):
        return ()
    width = width_by_weights(spec)
    if width is None:
        raise SpecError(
            f"sequential: {spec.kind} does not tell the shape of the input",
            hint="put it first: sequential(2, …) for rows of 2 features, sequential((1, 28, 28), …) for images",
        )
    return (width,)
