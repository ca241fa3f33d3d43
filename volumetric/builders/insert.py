"""Insert a network into another one, for example a stack between an encoder and its head."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from volumetric.base._typing import ROWS
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.layers import LayerSpec, Residual
from volumetric.layers.layer_spec import show_shape
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore


def insert(
    network: Network,
    params: Mapping[str, WeightStore],
    inner: Network,
    inner_params: Mapping[str, WeightStore],
    *,
    before: Coord,
) -> tuple[Network, Params]:
    """Insert the planes of `inner` before the plane of a layer, which then reads the output of `inner`.

    That plane and later planes move back; links, residuals, further inputs and outputs are updated to match. Outputs of
    earlier planes do not change.

    Parameters
    ----------
    network, params : the outer network, such as an encoder with its head
    inner, inner_params : the inner network, such as a stack; its input and output have the shape that the layer reads
    before : a layer that is the first of its plane and reads the output of the layer before it

    Returns
    -------
    network, params : the weights are shared with the inputs, not copied

    Raises
    ------
    SpecError, ShapeError
        The layer does not exist, is not the first of its plane or does not read the layer before it, or `inner` returns
        rows of another shape.
    UnsupportedError
        `inner` has further inputs or outputs.

    Examples
    --------
    >>> from volumetric import Coord, initialise
    >>> from volumetric.builders import auto_stack, insert, sequential
    >>> network, memory = sequential(4, 2, hidden=(8,)), auto_stack(8, 1, "S")
    >>> both, params = insert(network, initialise(network), memory, initialise(memory), before=Coord(1))
    >>> [spec.kind for spec in both.layers.values()]
    ['dense', 'post_up_gated', 'layer_norm', 'dense']
    """
    order = [wire.coord for wire in network.wires]
    if before not in order:
        raise SpecError(f"insert: there is no layer at {before}", hint=f"use one of {', '.join(map(str, order[:8]))}")
    at = order.index(before)
    if at == 0 or order[at - 1].z == before.z:
        first = next(coord for coord in order if coord.z == before.z)
        hint = "choose a layer that follows another one" if at == 0 else f"{first} is the first of that plane"
        raise SpecError(f"insert: cannot insert before {before}", hint=hint)
    if inner.inputs or inner.outputs:
        name = next(iter((*inner.inputs, *inner.outputs)))
        raise UnsupportedError(f"insert: a network with several inputs or outputs, as {name}, cannot be inserted")
    wire, front = network.wires[at], order[at - 1]
    if [(source.coord, source.delay) for source in wire.inputs] != [(front, 0)]:
        raise SpecError(
            f"insert: {before} does not read the output of {front}", hint="remove the links and inputs of this layer"
        )
    read, shapes = network.reads[before], ((ROWS, *inner.input_shape), inner.shapes[inner.taps["output"]])
    if any(shape != read for shape in shapes) or inner.input_dtype != "float32":
        span = f"{show_shape(shapes[0])} to {show_shape(shapes[1])}"
        raise ShapeError(f"insert: {before} reads {show_shape(read)}, but the inserted network maps {span}")
    depth = inner.grid.sides[0]

    def later(coord: Coord) -> Coord:
        return dataclasses.replace(coord, z=coord.z + depth) if coord.z >= before.z else coord

    def within(coord: Coord) -> Coord:
        return dataclasses.replace(coord, z=coord.z + before.z)

    layers = {later(coord): _move_residual(spec, later) for coord, spec in network.layers.items()}
    layers |= {within(coord): _move_residual(spec, within, front) for coord, spec in inner.layers.items()}
    links = tuple(dataclasses.replace(of, source=later(of.source), target=later(of.target)) for of in network.links)
    links += tuple(dataclasses.replace(of, source=within(of.source), target=within(of.target)) for of in inner.links)
    sides = zip(network.grid.sides[1:], inner.grid.sides[1:], strict=True)
    combined = Network(
        grid=Grid(network.grid.sides[0] + depth, *(max(pair) for pair in sides)),
        layers=layers,
        links=links,
        disabled=frozenset(map(later, network.disabled)) | frozenset(map(within, inner.disabled)),
        input_shape=network.input_shape,
        input_dtype=network.input_dtype,
        inputs={name: dataclasses.replace(port, coord=later(port.coord)) for name, port in network.inputs.items()},
        outputs={name: later(coord) for name, coord in network.outputs.items()},
    )
    stores = {_move_key(key, later): store for key, store in params.items()}
    stores |= {_move_key(key, within): store for key, store in inner_params.items()}
    return combined, Params({key: stores[key] for key in combined.param_specs()})


def _move_key(key: str, move: Callable[[Coord], Coord]) -> str:
    start, _, rest = key.partition("/")
    return f"{move(Coord.parse(start))}/{rest}"


def _move_residual(spec: LayerSpec, move: Callable[[Coord], Coord], input_source: Coord | None = None) -> LayerSpec:
    """Update the source of a Residual to its new coordinate; `input_source` replaces the network's input."""
    if not isinstance(spec, Residual) or spec.source is None:
        return spec
    if spec.source == "input":
        return spec if input_source is None else Residual(source=str(input_source))
    return Residual(source=str(move(Coord.parse(spec.source))))
