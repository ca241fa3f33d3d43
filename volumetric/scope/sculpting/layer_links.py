"""Layers of a sculpted network: masked layers, cut and added links, clocks and thresholds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.layers import LayerSpec
from volumetric.layers.clock import Clock
from volumetric.network import Network
from volumetric.network.grid import Coord, Link
from volumetric.scope.sculpting.clock_numbers import NEVER


def without_link(network: Network, source: Coord, target: Coord) -> Network:
    """Return a network in which a layer does not read another one.

    Raises
    ------
    SpecError : it does not read it, or reads nothing else: a layer needs an input
    """
    wire = next(w for w in network.wires if w.coord == target)
    mine = [of for of in wire.inputs if of.coord == source and of.side == "output"]
    if not mine:
        raise SpecError(f"the layer at {target} does not read the layer at {source} by an edge that can be cut")
    if len(mine) == len(wire.inputs):
        raise SpecError(
            f"the edge from {source} to {target} cannot be cut: the layer at {target} reads nothing else",
            hint="mask the layer instead, or add another edge to it first",
        )
    links = tuple(
        link
        for link in network.links
        if not (link.kind == "activation" and link.source == source and link.target == target)
    )
    chained = _previous(network, target)
    reads_chain = any(of.coord == chained and of.side == "output" and not of.delay for of in wire.inputs)
    if reads_chain and chained is not None and chained != source:
        return replace(network, links=links)
    # The chain would come in, or be cut: another input takes its place.
    for number, link in enumerate(links):
        if link.kind == "activation" and link.target == target:
            return replace(network, links=(*links[:number], replace(link, combine="replace"), *links[number + 1 :]))
    for name, port in network.inputs.items():
        if port.coord == target:
            return replace(network, links=links, inputs={**network.inputs, name: replace(port, combine="replace")})
    return replace(network, links=links)


def with_added_link(network: Network, source: Coord, target: Coord, delay: int | None, *, ticking: bool) -> Network:
    """Return a network in which a layer also reads another one.

    Raises
    ------
    SpecError, ShapeError : the link is not possible
    """
    if delay is None:
        delay = 1 if ticking or source >= target else 0
    return network.with_link(Link(source, target, combine="add", delay=delay))


def with_masked_layers(machine: Network | Clocked, coords: Iterable[Coord]) -> Network | Clocked:
    """Return a machine with masked layers.

    A masked layer of a clocked network never computes: its output stays what it is, which a mask sets to zeros. In a
    network that runs row by row, it passes its input on.
    """
    if isinstance(machine, Clocked):
        return replace(machine, clocks={**machine.clocks, **dict.fromkeys(coords, NEVER)})
    return replace(machine, disabled=machine.disabled | set(coords))


def with_layer_clock(machine: Network | Clocked, coord: Coord, text: str | None) -> Clocked:
    """Return a clocked network with another clock of a layer; raise `SpecError` for a network without clocks."""
    if not isinstance(machine, Clocked):
        raise SpecError(
            f"the layer at {coord} has no clock: this network runs row by row", hint="Clocked(network=…) has clocks"
        )
    clocks = {at: clock for at, clock in machine.clocks.items() if at != coord}
    return replace(machine, clocks=clocks if text is None else {**clocks, coord: Clock.parse(text)})


def threshold_of(spec: LayerSpec) -> float | None:
    """Return the threshold of a layer, None if it has none."""
    value = getattr(spec, "threshold", None)
    return float(value) if isinstance(value, (int, float)) else None


def with_threshold(network: Network, coord: Coord, value: float) -> Network:
    """Return a network with another threshold of a layer; raise `SpecError` if it has none."""
    spec: Any = network.layers[coord]
    if threshold_of(spec) is None:
        raise SpecError(f"the {spec.kind} at {coord} has no threshold")
    return network.with_layer(coord, replace(spec, threshold=value))


def _previous(network: Network, coord: Coord) -> Coord | None:
    """Return the layer before another one in reading order."""
    before: Coord | None = None
    for at in network.layers:
        if at == coord:
            return before
        before = at
    return None
