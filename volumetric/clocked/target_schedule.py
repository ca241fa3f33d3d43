"""Paths of targets through a clocked network: from the outputs backwards along the wires, one layer per tick.

The target of a layer's output gives a target for its input. The layer requests it from its sources, and the request
arrives one tick later. Which layers receive requests, from whom and with which share depends on the network alone.

By then the sources have new outputs. With the timing ``"present"``, a request applies to the present output, which is
right for inputs that are held. With ``"aligned"``, it applies to the output that caused it: a layer keeps its inputs
of the last `lag` ticks, and requests on shorter paths wait for those on the longest. Loops would make that endless, so
only layers later in reading order send requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from volumetric.clocked.machine import Clocked, ticks
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Dense, Discrete, LayerSpec, Residual
from volumetric.network import OUTPUT
from volumetric.network.grid import Coord
from volumetric.run.graph.inverses import EXACT, Inverse, InverseKind, learned_inverse, refuse_opaque
from volumetric.run.graph.target_rule import TargetCourse
from volumetric.run.plan import Step

Crossing: TypeAlias = Literal["none", "same", "derived", "exact", "inverse"]
"""How a layer's request follows from its target: none (no source takes one), the same value, by the layer's
derivative, by a formula, or by an inverse."""


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """A request: `share` of the request of `reader` arrives at a layer, with `delay` extra ticks."""

    reader: Coord
    share: float
    delay: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLayer:
    """A layer that receives targets.

    Attributes
    ----------
    requests : requests that arrive here
    loss_share : share of the losses in the target; 0: the layer is not an output with a loss
    kappa : step from output to target, as a factor on the gradient
    lag : ticks from an output to the arrival of its target
    crossing : how the layer's own request is computed
    inverse : the inverse, if `crossing` is ``"inverse"``
    discrete_output : the discrete layer that alone reads this output, if any
    """

    requests: tuple[TargetRequest, ...]
    loss_share: float
    kappa: float
    lag: int
    crossing: Crossing
    inverse: Inverse | None
    discrete_output: Discrete | None


TargetSchedule: TypeAlias = Mapping[Coord, TargetLayer]


def schedule_targets(clocked: Clocked, course: TargetCourse, outputs: Collection[str] = (OUTPUT,)) -> TargetSchedule:
    """Return the layers that receive targets from the passed outputs.

    Raises
    ------
    UnsupportedError : a target cannot cross one of them; the message names it
    """
    network = clocked.network
    taps = {network.taps[name] for name in outputs}
    aligned, gradient = course.timing == "aligned", course.method == "gradient"
    edges: dict[Coord, list[tuple[Coord, int, float]]] = {}
    for reader in network.layers:
        for source, after, share in _sources(clocked, reader, 1.0):
            if not aligned or source < reader:
                edges.setdefault(source, []).append((reader, after, 1.0 if gradient else share))
    derived = _derived_layers(clocked, taps, edges, course)
    hops = _hops(clocked, taps, edges, level=() if gradient else derived)
    lags = dict.fromkeys(hops, 0)
    if aligned:
        for coord in sorted(hops, reverse=True):
            ways = [1 + lags[j] + after for j, after, _ in edges.get(coord, ()) if j in hops]
            lags[coord] = max(ways, default=0)
    asked_layers = {
        source for source, readers in edges.items() if source in hops and any(j in hops for j, _, _ in readers)
    }
    stops: dict[Coord, TargetLayer] = {}
    for coord in sorted(hops):
        asks = [(j, after, share) for j, after, share in edges.get(coord, ()) if j in hops]
        many = 1 if gradient else len(asks) + (coord in taps)
        asks_none = not any(s in asked_layers for s, _, _ in _sources(clocked, coord, 1.0))
        crossing = "none" if asks_none else _crossing(clocked, coord, derived=coord in derived)
        stops[coord] = TargetLayer(
            requests=tuple(
                TargetRequest(
                    reader,
                    share * course.growth ** (hops[coord] - hops[reader]) / many,
                    lags[coord] - 1 - lags[reader] - after if aligned else 0,
                )
                for reader, after, share in asks
            ),
            loss_share=1 / many if coord in taps else 0.0,
            kappa=course.scale * course.growth ** hops[coord],
            lag=lags[coord],
            crossing=crossing,
            inverse=_inverse(clocked, coord, course.inverse) if crossing == "inverse" else None,
            discrete_output=_discrete_output(clocked, coord),
        )
    return stops


def last_arrival(schedule: TargetSchedule) -> int:
    """Return the ticks until a loss at the outputs has reached all layers, on paths without loops."""
    arrivals: dict[Coord, int] = {}

    def of(coord: Coord) -> int:
        if coord not in arrivals:
            arrivals[coord] = schedule[coord].lag if schedule[coord].loss_share else 0  # follow each loop only once
            arrivals[coord] = max(
                [arrivals[coord], *(1 + ask.delay + of(ask.reader) for ask in schedule[coord].requests)]
            )
        return arrivals[coord]

    return max(map(of, sorted(schedule, reverse=True)), default=0)


def step_of(clocked: Clocked, coord: Coord) -> Step:
    """Return the plan step of a layer."""
    network, spec = clocked.network, clocked.network.layers[coord]
    params = {p.name: network.resolve(f"{coord}/{p.name}") for p in spec.tensors()}
    return Step(op=spec.kind, where=str(coord), inputs=(), outputs=(), params=params, attrs={"spec": spec})


def learns(clocked: Clocked, coord: Coord) -> bool:
    """Return whether a layer is enabled and has weights."""
    return coord not in clocked.network.disabled and bool(clocked.network.layers[coord].params())


def _sources(clocked: Clocked, coord: Coord, share: float) -> Iterator[tuple[Coord, int, float]]:
    """Yield the source layers of a layer, with their delay in ticks and their share of its input."""
    w = clocked.wires[coord]
    whole = share if w.skip is None else share / 2
    for source in w.inputs:
        if source.coord is not None:
            yield source.coord, ticks(source), whole / len(w.inputs)
    if w.skip is not None and w.skip.coord is not None:
        if w.skip.side == "output":
            yield w.skip.coord, ticks(w.skip), whole
        else:
            for source, after, part in _sources(clocked, w.skip.coord, whole):
                yield source, after + 1, part


def _hops(
    clocked: Clocked, taps: set[Coord], edges: Mapping[Coord, list[tuple[Coord, int, float]]], level: Collection[Coord]
) -> dict[Coord, int]:
    """Return the layers that depend on weights and reach an output → layers after each on the shortest path.

    Only layers with weights count, except those of `level`.
    """
    weighted = {coord for coord in clocked.network.layers if learns(clocked, coord)}
    while more := {j for c in weighted for j, _, _ in edges.get(c, ())} - weighted:
        weighted |= more
    sources: dict[Coord, list[Coord]] = {}
    for source, readers in edges.items():
        for reader, _, _ in readers:
            sources.setdefault(reader, []).append(source)
    hops: dict[Coord, int] = {}
    waiting = dict.fromkeys(taps & weighted, 0)
    while waiting:
        coord = min(waiting, key=waiting.__getitem__)
        hops[coord] = waiting.pop(coord)
        further = hops[coord] + (learns(clocked, coord) and coord not in level)
        for source in sources.get(coord, ()):
            if source not in hops and source in weighted:
                waiting[source] = min(waiting.get(source, further), further)
    return hops


def _derived_layers(
    clocked: Clocked, taps: set[Coord], edges: Mapping[Coord, list[tuple[Coord, int, float]]], course: TargetCourse
) -> set[Coord]:
    """Return the layers whose request is a derivative: all, or those from the outputs to the first with weights."""
    if course.method == "gradient":
        for coord, spec in clocked.network.layers.items():
            if isinstance(spec, Discrete) and coord not in clocked.network.disabled:
                refuse_opaque(spec, str(coord))
        return set(clocked.network.layers)
    crossed, waiting = set[Coord](), sorted(taps)
    while waiting:
        coord = waiting.pop()
        if coord in crossed or (learns(clocked, coord) and course.top == "output"):
            continue
        crossed.add(coord)
        if not learns(clocked, coord):
            waiting += [source for source, readers in edges.items() if any(j == coord for j, _, _ in readers)]
    return crossed


def _crossing(clocked: Clocked, coord: Coord, *, derived: bool) -> Crossing:
    spec = clocked.network.layers[coord]
    if coord in clocked.network.disabled or isinstance(spec, Residual) or spec.inert:
        return "same"
    if derived:
        return "derived"
    return "exact" if spec.kind in EXACT else "inverse"


def _inverse(clocked: Clocked, coord: Coord, kind: InverseKind) -> Inverse:
    network, spec = clocked.network, clocked.network.layers[coord]
    output_shape, input_shape = network.shapes[coord][1:], network.reads[coord][1:]
    own = kind if isinstance(spec, Dense) else "learned"
    layer: LayerSpec | None = None
    if own == "learned":
        layer = learned_inverse(step_of(clocked, coord), spec, output_shape, input_shape, _activation(clocked, coord))
    return Inverse(where=str(coord), kind=own, layer=layer, shape=input_shape)


def _activation(clocked: Clocked, reader: Coord) -> Activation:
    """Return the activation that a layer's input comes from, through discrete and disabled layers; linear for sums."""
    while len(inputs := clocked.wires[reader].inputs) == 1 and (source := inputs[0].coord) is not None:
        spec = clocked.network.layers[source]
        if isinstance(spec, Discrete) or source in clocked.network.disabled:
            reader = source
            continue
        return getattr(spec, "activation", "linear")
    return "linear"


def _discrete_output(clocked: Clocked, coord: Coord) -> Discrete | None:
    """Return the discrete layer that alone reads an output, or None."""
    network = clocked.network
    readers = [w for w in clocked.wires.values() if any(s.coord == coord for s in clocked.sources(w))]
    specs = {network.layers[w.coord] if len(w.inputs) == 1 and not w.identity else None for w in readers}
    only = next(iter(specs)) if len(specs) == 1 else None
    return only if isinstance(only, Discrete) and coord not in network.taps.values() else None
