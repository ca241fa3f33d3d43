"""Declarations of the states that a clocked network keeps for each stream from tick to tick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from volumetric.base._typing import ROWS, Shape
from volumetric.clocked.machine import Clocked, ticks
from volumetric.graph.state_spec import StateSpec, bounded_states
from volumetric.layers.clock_steps import counters
from volumetric.network.grid import Coord


def stream_states(clocked: Clocked) -> dict[str, StateSpec]:
    """Return all states of a stream, by name.

    ``out/<coord>/<k>``: output of a layer k ticks ago, k ≥ 1; ``read/<coord>``: its input at the previous tick;
    ``port/<name>``: the last row of an input; ``<coord>/<state>``: a state of the layer; ``wait/<coord>``,
    ``wait/<coord>/1``, …: the counts of its clock; ``age``: ticks since the stream began.
    """
    return {state.name: state for state in _all(clocked)}


def _state_spec(
    key: str, shape: Shape, dtype: Literal["float32", "int32"] = "float32", start: float = 0.0
) -> StateSpec:
    return StateSpec(name=key, shape=shape, kind="fixed", dtype=dtype, start=start)


def _all(clocked: Clocked) -> Iterator[StateSpec]:
    network = clocked.network
    for name, port in network.ports.items():
        if clocked.hold.get(name, "last") == "last":
            yield _state_spec(port_key(name), port.shape, port.dtype)
    back, read = read_distances(clocked)
    for coord, spec in network.layers.items():
        shape, dtype = network.shapes[coord][1:], _dtype(clocked, coord)
        for k in range(1, back[coord] + 1):
            yield _state_spec(out_key(coord, k), shape, dtype)
        if coord in read:
            yield _state_spec(f"read/{coord}", network.reads[coord][1:])
        if coord not in network.disabled:
            for state in bounded_states(spec.states((ROWS, *network.reads[coord][1:])), f"{spec.kind} at {coord}"):
                yield _state_spec(f"{coord}/{state.name}", state.shape, state.dtype)
        if coord in clocked.clocks:
            for n, begun in enumerate(counters(clocked.clocks[coord])):
                yield _state_spec(wait_key(coord, n), (1,), start=begun)
    if clocked.start == "wavefront":
        yield _state_spec("age", (1,))


def _dtype(clocked: Clocked, coord: Coord) -> Literal["float32", "int32"]:
    """Return the dtype of an output: int32 if a disabled layer passes ids on."""
    if coord not in clocked.network.disabled:
        return "float32"
    source = clocked.wires[coord].inputs[0]
    if source.coord is None:
        return clocked.network.ports[source.port].dtype
    return _dtype(clocked, source.coord) if source.coord < coord else "float32"


def read_distances(clocked: Clocked) -> tuple[dict[Coord, int], set[Coord]]:
    """Return the number of past outputs to keep of each layer, and the layers whose inputs to keep."""
    back = dict.fromkeys(clocked.network.layers, 1)  # a layer that does not fire keeps its last output
    read: set[Coord] = set()
    for w in clocked.wires.values():
        for source in clocked.sources(w):
            if source.coord is not None and source.side == "input":
                read.add(source.coord)
            elif source.coord is not None:
                back[source.coord] = max(back[source.coord], ticks(source))
    return back, read


def out_key(coord: Coord, back: int) -> str:
    """Return the state name of a layer's output `back` ticks ago."""
    return f"out/{coord}/{back}"


def wait_key(where: object, n: int) -> str:
    """Return the state name of count `n` of a clock."""
    return f"wait/{where}/{n}" if n else f"wait/{where}"


def port_key(name: str) -> str:
    """Return the state name of an input's value."""
    return f"port/{name}"
