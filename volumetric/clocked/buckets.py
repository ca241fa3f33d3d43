"""Buckets: layers with equal specs, computed together. Their inputs and outputs are planes, ``[n, streams, …]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from volumetric.base._typing import Shape
from volumetric.clocked.machine import Clocked, ticks
from volumetric.clocked.states import out_key, read_distances, stream_states
from volumetric.layers import LayerSpec
from volumetric.layers.clock import Clock
from volumetric.network.grid import Coord
from volumetric.network.wiring import Source

GROUPED = ("dense", "mlp", "swiglu")
"""Layer kinds that run as one grouped matrix product if each layer has separate weights."""

Way: TypeAlias = Literal["rows", "grouped", "each"]


@dataclass(frozen=True, slots=True)
class PlaneRef:
    """Source of a value: a row of a plane, `back` ticks ago (0: the layer's input), or an input port."""

    bucket: int = -1
    index: int = 0
    back: int = 1
    port: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Layers with equal specs and equal input shapes that fire together.

    Attributes
    ----------
    way : ``"rows"``: one set of weights, or none, so that all layers are rows of one call; ``"grouped"``: a grouped
        matrix product; ``"each"``: one call per layer
    history : number of past outputs to store
    read : whether to store the input
    slots : terms of the input sum, in order; each has a `PlaneRef` for each coordinate, or None
    skips : second operand of residual layers, or None
    """

    coords: tuple[Coord, ...]
    spec: LayerSpec
    way: Way
    identity: bool
    shape: Shape
    reads: Shape
    clock: Clock | None
    history: int
    read: bool
    slots: tuple[tuple[PlaneRef | None, ...], ...]
    skips: tuple[PlaneRef, ...] | None

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.coords)


def buckets_of(clocked: Clocked) -> tuple[Bucket, ...]:
    """Group the coordinates of a clocked network."""
    network = clocked.network
    back, read = read_distances(clocked)
    states = stream_states(clocked)
    groups: dict[tuple[object, ...], list[Coord]] = {}
    for coord, spec in network.layers.items():
        identity = coord in network.disabled
        alike = (
            None if identity else spec,
            identity,
            network.reads[coord],
            clocked.wires[coord].skip is None,
            clocked.clocks.get(coord),
            back[coord],
            coord in read,
            states[out_key(coord, 1)].dtype,
            _keys(clocked, coord) if not identity and spec.contextual else None,  # with shared weights, states are rows
        )
        groups.setdefault(alike, []).append(coord)
    members = list(groups.values())
    place = {coord: (i, n) for i, coords in enumerate(members) for n, coord in enumerate(coords)}
    return tuple(_bucket(clocked, coords, place, back=back[coords[0]], read=coords[0] in read) for coords in members)


def _keys(clocked: Clocked, coord: Coord) -> tuple[str, ...]:
    network = clocked.network
    return tuple(network.resolve(f"{coord}/{p.name}") for p in network.layers[coord].tensors())


def _bucket(
    clocked: Clocked, coords: Sequence[Coord], place: dict[Coord, tuple[int, int]], *, back: int, read: bool
) -> Bucket:
    """Return the bucket of equal coordinates, with the sources of each."""
    network, first = clocked.network, coords[0]
    spec, identity = network.layers[first], first in network.disabled

    def ref(source: Source) -> PlaneRef:
        if source.coord is None:
            return PlaneRef(port=source.port)
        bucket, index = place[source.coord]
        return PlaneRef(bucket, index, 0 if source.side == "input" else ticks(source))

    read_by = [[ref(s) for s in clocked.wires[coord].inputs] for coord in coords]
    slots = tuple(tuple(refs[k] if k < len(refs) else None for refs in read_by) for k in range(max(map(len, read_by))))
    skips = tuple(ref(w.skip) for coord in coords if (w := clocked.wires[coord]).skip is not None)
    way: Way = "each"
    if identity or len(coords) == 1 or len({_keys(clocked, coord) for coord in coords}) == 1:
        way = "rows"
    elif spec.kind in GROUPED:
        way = "grouped"
    return Bucket(
        coords=tuple(coords),
        spec=spec,
        way=way,
        identity=identity,
        shape=network.shapes[first][1:],
        reads=network.reads[first][1:],
        clock=clocked.clocks.get(first),
        history=back,
        read=read,
        slots=slots,
        skips=skips or None,
    )
