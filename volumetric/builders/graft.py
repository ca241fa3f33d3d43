"""Grafting: join networks as branches of one Parallel layer, or add a residual path around a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from volumetric.base._typing import ROWS
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.builders.sequential import chain
from volumetric.layers import Gate, LayerSpec, Parallel, Residual, Sequential
from volumetric.layers.parallel import Combine
from volumetric.network import OUTPUT, Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore


def as_layer(network: Network) -> tuple[Sequential, dict[str, str]]:
    """Return a whole network as one layer, and a mapping from each parameter of the network to its name in the layer.

    Raises
    ------
    UnsupportedError
        The network has links, or further inputs or outputs, which a Sequential cannot hold.
    """
    if network.inputs or network.outputs:
        name = next(iter((*network.inputs, *network.outputs)))
        raise UnsupportedError(
            f"a network with several inputs or outputs ({name}) cannot become one layer",
            hint="remove them: dataclasses.replace(network, inputs={}, outputs={})",
        )
    if network.links:
        link = network.links[0]
        raise UnsupportedError(
            f"a network with links ({link.source} → {link.target}) cannot become one layer",
            hint="remove the links: copy shared weights, write activation links as residuals",
        )
    layers: list[LayerSpec] = []
    output_places: dict[
        Coord, int | None
    ] = {}  # index of the layer that computes the output of a coordinate; None is the input
    read: dict[Coord, int | None] = {}
    names: dict[str, str] = {}
    last: int | None = None
    for w in network.wires:
        spec = network.layers[w.coord]
        read[w.coord] = last
        if not w.identity:
            if w.skip is not None:
                coord = w.skip.coord
                value = None if coord is None else (output_places if w.skip.side == "output" else read)[coord]
                spec = Residual(source="input" if value is None else f"#{value}")
            names |= {f"{w.coord}/{p.name}": f"{len(layers)}/{p.name}" for p in spec.tensors()}
            layers.append(spec)
            last = len(layers) - 1
        output_places[w.coord] = last
    return Sequential(layers=tuple(layers)), names


def graft(
    networks: Sequence[tuple[Network, Mapping[str, WeightStore]]],
    combine: Combine = "concat",
    *,
    top_k: int | None = None,
) -> tuple[Network, Params]:
    """Join several networks with their weights into one Parallel layer on the same input.

    Parameters
    ----------
    networks : networks that read the same input, with their weights
    combine : how the outputs are combined, as in `Parallel`; ``"filter"`` adds a gate whose weights are zeros, so that
        all branches weigh the same until it is trained; ``"grid_scatter"`` puts them into cells of one row
    top_k : for ``"filter"``: number of branches that are used for a row

    Returns
    -------
    network, params : a network with one layer, at 0.0.0.0; weights are shared with the inputs, not copied

    Raises
    ------
    ShapeError, SpecError
        The networks read different inputs, or their outputs cannot be combined.
    UnsupportedError
        A network has links, or further inputs or outputs.
    """
    if not networks:
        raise SpecError("graft: networks is empty, expected at least one")
    first = networks[0][0]
    for i, (network, _) in enumerate(networks):
        if (network.input_shape, network.input_dtype) != (first.input_shape, first.input_dtype):
            raise ShapeError(
                f"graft: network {i} reads {network.input_dtype} {list(network.input_shape)}, "
                f"the first one {first.input_dtype} {list(first.input_shape)}"
            )
    parts = [as_layer(network) for network, _ in networks]
    gate = None
    if combine == "filter":
        if first.input_dtype != "float32" or len(first.input_shape) != 1:
            raise SpecError(
                "graft: combine='filter' needs networks that read rows of features",
                hint="use combine='concat', 'add' or 'avg'",
            )
        gate = Gate(in_features=first.input_shape[0], out_features=len(parts), top_k=top_k)
    grid = (1, 1, len(parts)) if combine == "grid_scatter" else None
    layer = Parallel(branches=tuple(branch for branch, _ in parts), combine=combine, gate=gate, grid=grid)
    layer.output_shape((ROWS, *first.input_shape))
    grafted = chain([layer], first.input_shape, first.input_dtype)
    stores = {
        f"0.0.0.0/{i}/{name}": params[key]
        for i, ((_, params), (_, names)) in enumerate(zip(networks, parts, strict=True))
        for key, name in names.items()
    }
    fresh = {key: spec for key, spec in grafted.param_specs().items() if key not in stores}
    stores |= {key: WeightStore.from_array(np.zeros(spec.shape, np.float32)) for key, spec in fresh.items()}
    return grafted, Params({key: stores[key] for key in grafted.param_specs()})


def around(network: Network) -> Network:
    """Return ``x + network(x)``: a Residual that adds the network's input, in a new last plane.

    Coordinates, and so the names of the weights, do not change.

    Raises
    ------
    ShapeError
        Output and input differ in shape.
    UnsupportedError
        The output is not the output of the last layer.
    """
    if OUTPUT in network.outputs:
        raise UnsupportedError(
            f"around: the output comes from {network.outputs[OUTPUT]}, so a sum after the last layer has no effect"
        )
    depth, rows, cols, slots = network.grid.sides
    grown = dataclasses.replace(network, grid=Grid(depth + 1, rows, cols, slots))
    return grown.with_layer(Coord(depth), Residual(source="input"))
