"""What a viewer shows: nodes with a place in space, and what goes from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from volumetric.clocked import Clocked, ticks
from volumetric.errors import CheckpointError, SpecError
from volumetric.grid import Coord
from volumetric.network import Network


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is active: a layer, a cell of a fabric, a region.

    Attributes
    ----------
    id : its number, by which arrays of activity are ordered
    group : nodes that share a scale
    at : x, y, z
    size : numbers that it makes
    """

    id: int
    name: str
    role: Literal["input", "cell", "output", "region"]
    group: str
    at: tuple[float, float, float]
    size: int = 1


class Edge(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A way from one node to another.

    Attributes
    ----------
    delay : ticks, or rows, from what the source makes to who reads it
    """

    id: int
    source: int
    target: int
    kind: str
    length: float = 0.0
    delay: int = 0


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Where an input or an output of the network is."""

    node: int
    direction: Literal["in", "out"]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """All that stays as it is while a network runs.

    Attributes
    ----------
    kind : ``"systolic"`` (tick by tick), ``"stack"`` (row by row), ``"fabric"``, ``"program"``, …
    ports : inputs and outputs by name
    populations : group → number of its nodes
    families : of programs: region → family
    latency : output → ticks until an input can change it
    left_out : edges beyond the number that was asked for
    """

    kind: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    ports: dict[str, End] = {}
    populations: dict[str, int] = {}
    families: dict[str, str] = {}
    latency: dict[str, int] = {}
    left_out: int = 0

    @property
    def groups(self) -> list[str]:
        """Groups of nodes, in the order of their first ones."""
        return list(dict.fromkeys(node.group for node in self.nodes))

    @property
    def group_of(self) -> list[int]:
        """Place of each node's group in `groups`."""
        places = {name: i for i, name in enumerate(self.groups)}
        return [places[node.group] for node in self.nodes]

    def check(self) -> None:
        """Raise `CheckpointError` unless numbers of nodes and edges are places in their lists."""
        counts = len(self.nodes), len(self.edges)
        known = [node.id for node in self.nodes] == list(range(counts[0]))
        known &= [edge.id for edge in self.edges] == list(range(counts[1]))
        ends = [edge.source for edge in self.edges] + [edge.target for edge in self.edges]
        ends += [end.node for end in self.ports.values()]
        if not known or any(not 0 <= end < counts[0] for end in ends):
            raise CheckpointError("the scene names nodes or edges that there are not")
        if any(abs(x) >= 1e9 for node in self.nodes for x in node.at):
            raise CheckpointError("the scene has nodes that stand too far away")


def scene_of(machine: Network | Clocked, *, edges: int = 4000) -> Scene:
    """Return the scene of a network: a node for each layer, where it stands in the grid, slots side by side.

    Parameters
    ----------
    edges : most that are shown; of more, every so many are

    Raises
    ------
    SpecError : `edges` is below 0
    """
    if edges < 0:
        raise SpecError(f"edges must be 0 or more, got {edges}")
    network = machine.network if isinstance(machine, Clocked) else machine
    numbers = {coord: i for i, coord in enumerate(network.layers)}
    reading = {port.coord for port in network.ports.values()}
    made = set(network.taps.values())
    slots = 1 + max(coord.slot for coord in network.layers)
    nodes = tuple(
        Node(
            id=i,
            name=f"{coord} {network.layers[coord].kind}",
            role="output" if coord in made else "input" if coord in reading else "cell",
            group=network.layers[coord].kind,
            at=(coord.x + coord.slot / slots, float(coord.y), float(coord.z)),
            size=_size(network, coord),
        )
        for coord, i in numbers.items()
    )
    found = list(_edges(network, numbers, ticking=isinstance(machine, Clocked)))
    every = -(-len(found) // edges) if edges else 0
    shown = found[::every] if every else []
    ports = {name: End(node=numbers[port.coord], direction="in") for name, port in network.ports.items()}
    ports |= {name: End(node=numbers[coord], direction="out") for name, coord in network.taps.items()}
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.group] = counts.get(node.group, 0) + 1
    return Scene(
        kind="systolic" if isinstance(machine, Clocked) else "stack",
        nodes=nodes,
        edges=tuple(msgspec.structs.replace(edge, id=i) for i, edge in enumerate(shown)),
        ports=ports,
        populations=counts,
        latency=_latency(machine),
        left_out=len(found) - len(shown),
    )


def _size(network: Network, coord: Coord) -> int:
    size = 1
    for n in network.shapes[coord][1:]:
        size *= n
    return size


def _edges(network: Network, numbers: dict[Coord, int], *, ticking: bool) -> Iterator[Edge]:
    order = list(numbers)
    for wire in network.wires:
        before = order[numbers[wire.coord] - 1] if numbers[wire.coord] else None
        for source in wire.inputs if wire.skip is None else (*wire.inputs, wire.skip):
            if source.coord is None:
                continue
            a, b = source.coord, wire.coord
            yield Edge(
                id=0,
                source=numbers[a],
                target=numbers[b],
                kind="chain" if a == before and not source.delay else "link",
                length=float((a.x - b.x) ** 2 + (a.y - b.y) ** 2 + (a.z - b.z) ** 2) ** 0.5,
                delay=ticks(source) if ticking else source.delay,
            )


def _latency(machine: Network | Clocked) -> dict[str, int]:
    """Ticks to each output from the input that reaches it first; none of networks that run row by row."""
    if not isinstance(machine, Clocked):
        return {}
    ways = {
        tap: [n for name in machine.network.ports if (n := machine.latency(name, tap)) is not None]
        for tap in machine.network.taps
    }
    return {tap: min(of) for tap, of in ways.items() if of}
