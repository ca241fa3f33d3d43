"""Fabrics in a scene: their nodes at their places on the lattice, and the strength of their public outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_latency import latencies
from volumetric.layers import LayerSpec
from volumetric.network import Network
from volumetric.network.grid import Coord
from volumetric.run.streams import RowStream

Role: TypeAlias = Literal["input", "cell", "output"]


class FabricSpot(NamedTuple):
    """A node of a fabric: name, role, group, and its x, y, z from the fabric's first corner."""

    name: str
    role: Role
    group: str
    at: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class FabricPart:
    """A fabric that is a layer of a network.

    Its nodes are in the order of its facts: inputs by port, cells by population, outputs by port.

    Attributes
    ----------
    coord : coordinate in the network
    first : index of its first node in the scene
    """

    coord: Coord
    spec: Fabric
    first: int

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self.spec.facts.order)

    @cached_property
    def places(self) -> Array:
        """x, y, z of each node, none below 0; float64 ``[nodes, 3]``."""
        facts = self.spec.facts
        places = np.zeros((self.count, 3))
        axes = min(3, facts.coords.shape[1])
        places[:, :axes] = facts.coords[:, :axes]
        return places - places.min(0)

    @cached_property
    def groups(self) -> list[tuple[Role, str, slice]]:
        """Role, name and node range of each port and population, in order."""
        facts, spec = self.spec.facts, self.spec
        shift = facts.inputs
        groups: list[tuple[Role, str, slice]] = [("input", port.name, facts.ports[port.name]) for port in spec.inputs]
        for p in spec.populations:
            own = facts.populations[p.name]
            groups.append(("cell", p.name, slice(own.start + shift, own.stop + shift)))
        shift = facts.senders_count
        for port in spec.outputs:
            own = facts.ports[port.name]
            groups.append(("output", port.name, slice(own.start + shift, own.stop + shift)))
        return sorted(groups, key=lambda of: of[2].start)

    def spots(self, *, alone: bool) -> list[FabricSpot]:
        """Return the nodes; group names start with the fabric's coordinate unless it is `alone`."""
        ids, places = self.spec.facts.order.tolist(), self.places.tolist()
        prefix = "" if alone else f"{self.coord} "
        return [
            FabricSpot(f"{prefix}{name} {ids[i]}", role, f"{prefix}{name}", (places[i][0], places[i][1], places[i][2]))
            for role, name, own in self.groups
            for i in range(own.start, own.stop)
        ]

    @property
    def ends(self) -> tuple[range, range]:
        """Indices of the input nodes and of the output nodes."""
        facts = self.spec.facts
        return range(self.first, self.first + facts.inputs), range(
            self.first + facts.senders_count, self.first + self.count
        )

    @cached_property
    def edges(self) -> tuple[Array, Array, Array, Array]:
        """Senders and receivers of the edges, as indices of the scene, with their lengths and delays."""
        facts = self.spec.facts
        receivers = self.first + facts.inputs + facts.receivers
        return self.first + facts.senders.astype(np.int64), receivers, facts.distance, facts.delay

    @property
    def latency(self) -> dict[str, int]:
        """Output → minimum number of rows until some input can change it."""
        earliest = {}
        for name, row in latencies(self.spec).items():
            known = [rows for rows in row.values() if rows is not None]
            earliest |= {name: min(known)} if known else {}
        return earliest

    def rms(self, cells: Array, read: Array | None, output: Array) -> Array:
        """Return the strength of each node.

        It is the root mean square of a cell's public output, or of a port's columns of the row.

        Parameters
        ----------
        cells : root mean square of each cell's public output, ``[cells]``
        read : input row of the fabric, ``[…, inputs]``, or its strength (a number); None: unknown, 0
        output : output row of the fabric, ``[…, outputs]``, or its strength

        Returns
        -------
        float64 ``[nodes]``
        """
        values = np.zeros(self.count)
        rows = {"input": (read, self.spec.ports("inputs")), "output": (output, self.spec.ports("outputs"))}
        for role, name, own in self.groups:
            if role == "cell":
                continue
            row, columns = rows[role]
            if row is not None:
                values[own] = strength(row if row.ndim == 0 else row[..., slice(*columns[name])])
        shift = self.spec.facts.inputs
        values[shift : shift + self.spec.facts.cells] = cells
        return values


def strength(x: Array) -> float:
    """Return the root mean square; for a number its magnitude."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.square(x, dtype=np.float64).mean()))


def fabric_parts(layers: Mapping[Coord, LayerSpec]) -> dict[Coord, FabricPart]:
    """Return the fabrics among the layers of a network, with the indices of their nodes in its scene."""
    parts: dict[Coord, FabricPart] = {}
    first = 0
    for coord, spec in layers.items():
        if isinstance(spec, Fabric):
            parts[coord] = FabricPart(coord, spec, first)
            first += parts[coord].count
        else:
            first += 1
    return parts


def strengths(
    network: Network,
    parts: Mapping[Coord, FabricPart],
    outputs: Mapping[Coord, Array],
    inputs: Mapping[str, Array],
    cells: Mapping[Coord, Array],
) -> Array:
    """Return the strength of each node of a scene.

    Parameters
    ----------
    outputs, inputs : last row of each layer and of each input, ``[streams, …]``, or its strength, a number
    cells : root mean square of the public output of each cell of a fabric

    Returns
    -------
    float64 ``[nodes]``
    """
    read = {wire.coord: wire.inputs for wire in network.wires}
    values: list[Array] = []
    for coord, row in outputs.items():
        if coord not in parts:
            values.append(np.array([strength(row)]))
            continue
        sources = [
            None if of.delay or of.side == "input" else inputs.get(of.port) if of.coord is None else outputs[of.coord]
            for of in read[coord]
        ]
        rows = [of for of in sources if of is not None]
        known = len(rows) == len(sources) and (len(rows) == 1 or all(of.ndim for of in rows))
        values.append(parts[coord].rms(cells[coord], np.asarray(sum(rows)) if known else None, row))
    return np.concatenate(values)


def cells_of(
    stream: RowStream | ClockedStream, parts: Mapping[Coord, FabricPart], row: int | None
) -> dict[Coord, Array]:
    """Return the root mean square of each cell's public output, in one stream or over all, float64 ``[cells]``."""
    cells: dict[Coord, Array] = {}
    for coord in parts:
        by_stream = stream.strength(f"{coord}/shown")
        with np.errstate(over="ignore", invalid="ignore"):
            cells[coord] = np.sqrt(np.square(by_stream).mean(0)) if row is None else by_stream[row]
    return cells


def awake_nodes(stream: RowStream | ClockedStream, parts: Mapping[Coord, FabricPart], fired: Array) -> Array:
    """Return which nodes compute: the unmasked nodes of the layers that compute."""
    flags: list[Array] = []
    for coord, own in zip(_layers(stream), fired, strict=True):
        part = parts.get(coord)
        if part is None:
            flags.append(np.array([own]))
            continue
        nodes = np.full(part.count, own)
        if part.spec.dynamic:
            nodes &= np.isin(part.spec.facts.order, stream.living_nodes(at=str(coord)))
        flags.append(nodes)
    return np.concatenate(flags)


def _layers(stream: RowStream | ClockedStream) -> list[Coord]:
    network = stream.clocked.network if isinstance(stream, ClockedStream) else stream.network
    return [*network.layers]
