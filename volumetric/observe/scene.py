"""Scene for viewers: nodes with places in space, and edges between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.clocked import Clocked, ticks
from volumetric.network import Network
from volumetric.network.grid import Coord

if TYPE_CHECKING:
    from volumetric.observe.fabric_scene import FabricPart
    from volumetric.program.layer.program_layer import Program


class SceneNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An active unit: a layer, a cell of a fabric, or a region.

    Attributes
    ----------
    id : index in arrays of activity
    group : name of the group, whose nodes share a scale
    at : x, y, z
    size : number of output values
    coord : z, y, x, slot of its layer in the grid of a network; None: it is in none
    extent : width of its box along x, y, z, with `at` in the middle; None: a point
    clock : text of the clock of its layer or region; empty: it computes at every tick or row
    """

    id: int
    name: str
    role: Literal["input", "cell", "output", "region"]
    group: str
    at: tuple[float, float, float]
    size: int = 1
    coord: tuple[int, int, int, int] | None = None
    extent: tuple[float, float, float] | None = None
    clock: str = ""


class SceneEdge(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A connection between two nodes.

    Attributes
    ----------
    delay : ticks, or rows, from the output of the source to its reader
    """

    id: int
    source: int
    target: int
    kind: str
    length: float = 0.0
    delay: int = 0


class ScenePort(msgspec.Struct, frozen=True, kw_only=True):
    """The node of an input or an output of the network."""

    node: int
    direction: Literal["in", "out"]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The constant part of a view: everything that does not change while a network runs.

    Attributes
    ----------
    kind : ``"systolic"`` (tick by tick), ``"stack"`` (row by row), ``"fabric"``, ``"program"``, …
    ports : inputs and outputs by name
    populations : group → number of its nodes
    families : for programs: region → family
    latency : output → ticks until an input can change it; for a single fabric: its outputs → rows
    left_out : number of edges beyond the requested maximum
    """

    kind: str
    nodes: tuple[SceneNode, ...]
    edges: tuple[SceneEdge, ...] = ()
    ports: dict[str, ScenePort] = {}
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
        """Index of each node's group in `groups`."""
        places = {name: i for i, name in enumerate(self.groups)}
        return [places[node.group] for node in self.nodes]

    def check(self) -> None:
        """Raise `CheckpointError` unless ids of nodes and edges are their list indices."""
        counts = len(self.nodes), len(self.edges)
        known = [node.id for node in self.nodes] == list(range(counts[0]))
        known &= [edge.id for edge in self.edges] == list(range(counts[1]))
        ends = [edge.source for edge in self.edges] + [edge.target for edge in self.edges]
        ends += [end.node for end in self.ports.values()]
        if not known or any(not 0 <= end < counts[0] for end in ends):
            raise CheckpointError("the scene names nodes or edges that do not exist")
        if any(abs(x) >= 1e9 for node in self.nodes for x in node.at):
            raise CheckpointError("the scene has nodes that are too far away")


def scene_of(machine: Network | Clocked, *, edges: int = 4000) -> Scene:
    """Return the scene of a network: a node for each layer at its place in the grid, with slots next to each other.

    A fabric has a node for each of its nodes, at its place on the lattice; ports and populations are groups. A network
    of one program has a node for each region, at the centre of its box; families are groups.

    Parameters
    ----------
    edges : maximum number of edges; if there are more, an even sample is shown

    Raises
    ------
    SpecError : `edges` is below 0
    """
    if edges < 0:
        raise SpecError(f"edges must be 0 or more, got {edges}")
    network = machine.network if isinstance(machine, Clocked) else machine
    program = None if network is not machine else program_of(network)
    if program is not None:
        from volumetric.observe.program_scene import program_scene

        return program_scene(program, edges)
    parts = parts_of(network)
    firsts = first_nodes(network, parts)
    clocks = {coord: str(clock) for coord, clock in machine.clocks.items()} if isinstance(machine, Clocked) else {}
    nodes = tuple(_nodes(network, parts, firsts, clocks))
    wires = list(_edges(network, parts, firsts, ticking=isinstance(machine, Clocked)))
    count = len(wires) + sum(len(part.edges[0]) for part in parts.values())
    shown = _sample_edges(wires, parts, range(0, count, max(1, -(-count // edges))) if edges else range(0))
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.group] = counts.get(node.group, 0) + 1
    ticking = "systolic" if isinstance(machine, Clocked) else "stack"
    return Scene(
        kind="fabric" if parts else ticking,
        nodes=nodes,
        edges=shown,
        ports=_ports(network, parts, firsts),
        populations=counts,
        latency=_latency(machine, parts),
        left_out=count - len(shown),
    )


def parts_of(network: Network) -> dict[Coord, FabricPart]:
    """Return the fabrics among the layers of a network, with the indices of their nodes in its scene."""
    if all(spec.kind != "fabric" for spec in network.layers.values()):
        return {}
    from volumetric.observe.fabric_scene import fabric_parts

    return fabric_parts(network.layers)


def program_of(network: Network) -> Program | None:
    """Return the program of a network with no other layers, else None."""
    if [spec.kind for spec in network.layers.values()] != ["program"]:
        return None
    from volumetric.observe.program_scene import shown_program

    return shown_program(network)


def first_nodes(network: Network, parts: Mapping[Coord, FabricPart]) -> dict[Coord, int]:
    """Return the index of the first (often the only) node of each layer."""
    firsts: dict[Coord, int] = {}
    first = 0
    for coord in network.layers:
        firsts[coord] = first
        first += parts[coord].count if coord in parts else 1
    return firsts


def _nodes(
    network: Network, parts: Mapping[Coord, FabricPart], firsts: Mapping[Coord, int], clocks: Mapping[Coord, str]
) -> Iterator[SceneNode]:
    """Yield the nodes of the layers in order, those of a fabric one by one."""
    reading, tapped = {port.coord for port in network.ports.values()}, set(network.taps.values())
    slots = 1 + max(coord.slot for coord in network.layers)
    starts = [_starts(network, parts, axis) for axis in range(3)]
    for coord, spec in network.layers.items():
        x, y, z = (start[place] for start, place in zip(starts, (coord.x, coord.y, coord.z), strict=True))
        x += coord.slot / slots
        if coord not in parts:
            yield SceneNode(
                id=firsts[coord],
                name=f"{coord} {spec.kind}",
                role="output" if coord in tapped else "input" if coord in reading else "cell",
                group=spec.kind,
                at=(x, y, z),
                size=_size(network, coord),
                coord=_coord(coord),
                clock=clocks.get(coord, ""),
            )
            continue
        part, place = parts[coord], _coord(coord)
        for i, spot in enumerate(part.spots(alone=len(parts) == 1)):
            yield SceneNode(
                id=part.first + i,
                name=spot.name,
                role=spot.role,
                group=spot.group,
                at=(x + spot.at[0], y + spot.at[1], z + spot.at[2]),
                size=part.spec.hidden,
                coord=place,
                clock=clocks.get(coord, ""),
            )


def _coord(coord: Coord) -> tuple[int, int, int, int]:
    return coord.z, coord.y, coord.x, coord.slot


def _starts(network: Network, parts: Mapping[Coord, FabricPart], axis: int) -> dict[int, float]:
    """Return the positions of layers along an axis; a fabric takes its width."""
    wide: dict[int, float] = {}
    for coord in network.layers:
        place = (coord.x, coord.y, coord.z)[axis]
        own = 1.0 + float(parts[coord].places[:, axis].max()) if coord in parts else 1.0
        wide[place] = max(wide.get(place, 1.0), own)
    starts, at = dict[int, float](), 0.0
    for place in range(max(wide) + 1):
        starts[place] = at
        at += wide.get(place, 1.0)
    return starts


def _ports(network: Network, parts: Mapping[Coord, FabricPart], firsts: Mapping[Coord, int]) -> dict[str, ScenePort]:
    """Return the nodes of the network's inputs and outputs; for a single fabric the first node of each of its ports."""
    if len(network.layers) == 1:
        for part in parts.values():
            return {
                name: ScenePort(node=part.first + own.start, direction="in" if role == "input" else "out")
                for role, name, own in part.groups
                if role != "cell"
            }
    ends = {name: ScenePort(node=firsts[port.coord], direction="in") for name, port in network.ports.items()}
    last = {c: parts[c].ends[1][0] if c in parts else first for c, first in firsts.items()}
    return ends | {name: ScenePort(node=last[coord], direction="out") for name, coord in network.taps.items()}


def _sample_edges(wires: list[SceneEdge], parts: Mapping[Coord, FabricPart], numbers: range) -> tuple[SceneEdge, ...]:
    """Return the edges with these numbers, counted over all wires and then all fabrics."""
    every = np.asarray(numbers, np.int64)
    edges = [wires[i] for i in every[every < len(wires)].tolist()]
    first = len(wires)
    for part in parts.values():
        senders, receivers, length, delay = part.edges
        mine = every[(every >= first) & (every < first + len(senders))] - first
        first += len(senders)
        each = (of[mine].tolist() for of in (senders, receivers, length, delay))
        edges += [
            SceneEdge(id=0, source=a, target=b, kind="edge", length=far, delay=late)
            for a, b, far, late in zip(*each, strict=True)
        ]
    return tuple(msgspec.structs.replace(edge, id=i) for i, edge in enumerate(edges))


def _size(network: Network, coord: Coord) -> int:
    size = 1
    for n in network.shapes[coord][1:]:
        size *= n
    return size


def _edges(
    network: Network, parts: Mapping[Coord, FabricPart], firsts: Mapping[Coord, int], *, ticking: bool
) -> Iterator[SceneEdge]:
    """Yield the edges between layers: from all output nodes of a fabric, to all input nodes of one."""
    order = list(firsts)
    numbers = {coord: i for i, coord in enumerate(order)}
    for wire in network.wires:
        before = order[numbers[wire.coord] - 1] if numbers[wire.coord] else None
        for source in wire.inputs if wire.skip is None else (*wire.inputs, wire.skip):
            if source.coord is None:
                continue
            a, b = source.coord, wire.coord
            senders = parts[a].ends[1] if a in parts else (firsts[a],)
            receivers = parts[b].ends[0] if b in parts else (firsts[b],)
            for sender, receiver in product(senders, receivers):
                yield SceneEdge(
                    id=0,
                    source=sender,
                    target=receiver,
                    kind="chain" if a == before and not source.delay else "link",
                    length=float((a.x - b.x) ** 2 + (a.y - b.y) ** 2 + (a.z - b.z) ** 2) ** 0.5,
                    delay=ticks(source) if ticking else source.delay,
                )


def _latency(machine: Network | Clocked, parts: Mapping[Coord, FabricPart]) -> dict[str, int]:
    """Return output → ticks from the input that reaches it first; for a single fabric in rows."""
    if not isinstance(machine, Clocked):
        return next(iter(parts.values())).latency if len(parts) == 1 else {}
    ways = {
        tap: [n for name in machine.network.ports if (n := machine.latency(name, tap)) is not None]
        for tap in machine.network.taps
    }
    return {tap: min(of) for tap, of in ways.items() if of}
