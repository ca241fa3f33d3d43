"""Cubes: a layer in every cell of a 3D grid, each reading the cells around it."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from volumetric.base._typing import ROWS
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError
from volumetric.layers import Dense, LayerSpec
from volumetric.layers.layer_spec import show_shape
from volumetric.network import Network
from volumetric.network.grid import AROUND, Coord, Grid, Link
from volumetric.network.wiring import width_by_weights

Neighbours: TypeAlias = Literal[6, 18, 26, "past"]


@explain_call_errors
def cube(
    depth: int,
    rows: int,
    cols: int,
    cell: LayerSpec,
    *,
    neighbours: Neighbours = 6,
    inputs: int | None = None,
    outputs: int | None = None,
    shared: bool = False,
) -> Network:
    """Return a grid of ``depth × rows × cols`` equal cells: each reads the sum of its neighbours' outputs.

    The first cell, ``0.0.0.0``, also reads the input; the output is that of the last cell, in the opposite corner.

    Parameters
    ----------
    cell : layer of every cell; its output has the width of its input, as ``Dense(16, activation="tanh")``
    neighbours : the cells that a cell reads

        - ``6``: those that share a face with it; ``18``: or an edge; ``26``: or a corner. Signals go both ways, in
          loops. In a `Clocked` network each cell reads its neighbours of the tick before, so a signal passes one cell
          a tick; that is the way to train it. Run as a plain network, cells earlier in reading order are read in the
          same row, and later ones in the row before (links of ``delay=1``)
        - ``"past"``: those that share a face with it and come before it, at most three. There is no loop: a plain
          feed-forward network for independent samples, for every device and every trainer
    inputs : features of a row of input, if they are not those of a cell: a Dense layer at ``0.0.0.0`` maps them, and
        the first cell moves to slot 1 of its place
    outputs : features of a row of output, if they are not those of a cell: a Dense layer follows the last cell, in the
        next slot of its place
    shared : all cells have the weights of the first one, as in a cellular automaton

    Raises
    ------
    SpecError
        A side is below 1, `neighbours` is something else, or `cell` changes the width or shape of a row.

    Examples
    --------
    >>> from volumetric.layers import Dense
    >>> network = cube(4, 4, 4, Dense(16, activation="tanh"), neighbours=6)
    >>> len(network.layers), len(network.links)
    (64, 288)
    >>> cube(2, 2, 2, Dense(8, activation="tanh"), neighbours="past", inputs=2, outputs=1).shapes[Coord(1, 1, 1, 1)][1:]
    (1,)
    """
    if not isinstance(cell, LayerSpec):
        raise SpecError(f"cube: expected a layer for its cells, got {cell!r:.60}", hint="for example Dense(16)")
    past = neighbours == "past"
    if isinstance(neighbours, bool) or (not past and neighbours not in AROUND):
        raise SpecError(f"cube: unknown neighbours {neighbours!r}", hint='one of 6, 18, 26, "past"')
    width = _width(cell)
    sides = Grid(depth, rows, cols)
    places = {at: dataclasses.replace(at, slot=int(inputs is not None and at == Coord(0))) for at in sides}
    layers: dict[Coord, LayerSpec] = dict.fromkeys(places.values(), cell)
    if inputs is not None:
        layers[Coord(0)] = Dense(inputs, width)
    first, last = places[Coord(0)], places[Coord(depth - 1, rows - 1, cols - 1)]
    if outputs is not None:
        layers[dataclasses.replace(last, slot=last.slot + 1)] = Dense(width, outputs)
    links: list[Link] = []
    for at, target in places.items():
        for near in sides.neighbours(at, 6 if neighbours == "past" else neighbours):
            if past and near > at:
                continue
            links.append(
                Link(
                    kind="activation",
                    source=places[near],
                    target=target,
                    combine="add" if target == first else "replace",  # the first cell also reads the input
                    delay=int(near > at),
                )
            )
    if shared:
        links += [Link(kind="shared", source=first, target=to) for to in places.values() if to != first]
    return Network(
        layers=layers, links=links, input_shape=(width if inputs is None else inputs,), input_dtype="float32"
    )


def _width(cell: LayerSpec) -> int:
    """Return the width of rows that a cell reads and returns."""
    width = width_by_weights(cell)
    if width is None:
        raise SpecError(f"cube: {cell.kind} has no weights that tell its width", hint="for example Dense(16)")
    shape = cell.output_shape((ROWS, width))
    if shape != (ROWS, width):
        raise SpecError(
            f"cube: cells read what other cells return, but {cell.kind} makes {show_shape(shape)} of "
            f"{show_shape((ROWS, width))}",
            hint=f"for example Dense({width}), which is {width} → {width}; inputs=… and outputs=… change the ends",
        )
    return width
