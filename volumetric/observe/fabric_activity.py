"""How strong the nodes of a network with fabrics are: layers by what they make, cells by what they show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from volumetric._typing import Array
from volumetric.grid import Coord
from volumetric.network import Network
from volumetric.observe.fabric_scene import FabricPart, strength
from volumetric.runtime.streams import ClockedStream, RowStream


def strengths(
    network: Network,
    parts: Mapping[Coord, FabricPart],
    made: Mapping[Coord, Array],
    given: Mapping[str, Array],
    cells: Mapping[Coord, Array],
) -> Array:
    """Return how strong each node of a scene is.

    Parameters
    ----------
    made, given : last row of each layer and of each input, ``[streams, …]``, or how strong it is, a number
    cells : root mean square of what each cell of a fabric shows

    Returns
    -------
    float64 ``[nodes]``
    """
    read = {wire.coord: wire.inputs for wire in network.wires}
    found: list[Array] = []
    for coord, row in made.items():
        if coord not in parts:
            found.append(np.array([strength(row)]))
            continue
        sources = [
            None if of.delay or of.side == "input" else given.get(of.port) if of.coord is None else made[of.coord]
            for of in read[coord]
        ]
        rows = [of for of in sources if of is not None]
        known = len(rows) == len(sources) and (len(rows) == 1 or all(of.ndim for of in rows))
        found.append(parts[coord].rms(cells[coord], np.asarray(sum(rows)) if known else None, row))
    return np.concatenate(found)


def cells_of(
    stream: RowStream | ClockedStream, parts: Mapping[Coord, FabricPart], row: int | None
) -> dict[Coord, Array]:
    """Return how strong what each cell shows is, in one of the streams or in all together, float64 ``[cells]``."""
    found: dict[Coord, Array] = {}
    for coord in parts:
        by_stream = stream.strength(f"{coord}/shown")
        with np.errstate(over="ignore", invalid="ignore"):
            found[coord] = np.sqrt(np.square(by_stream).mean(0)) if row is None else by_stream[row]
    return found


def awake(stream: RowStream | ClockedStream, parts: Mapping[Coord, FabricPart], fired: Array) -> Array:
    """Return which nodes compute, from which layers do: of a layer that does those that are not masked."""
    found: list[Array] = []
    for coord, own in zip(_layers(stream), fired, strict=True):
        part = parts.get(coord)
        if part is None:
            found.append(np.array([own]))
            continue
        nodes = np.full(part.count, own)
        if part.spec.dynamic:
            nodes &= np.isin(part.spec.facts.order, stream.living(at=str(coord)))
        found.append(nodes)
    return np.concatenate(found)


def _layers(stream: RowStream | ClockedStream) -> list[Coord]:
    network = stream.clocked.network if isinstance(stream, ClockedStream) else stream.network
    return [*network.layers]
