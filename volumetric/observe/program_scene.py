"""Programs in a scene: a node for each region, at the centre of its box, and the edges between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from volumetric.base._typing import Array
from volumetric.network import Network
from volumetric.observe.firing import watchable
from volumetric.observe.scene import Scene, SceneEdge, SceneNode, ScenePort
from volumetric.program.layer.ports import Out, Signal
from volumetric.program.layer.program_facts import Facts, Place
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.reachability import latency
from volumetric.program.layer.watch_outputs import EDGES, REGIONS, STRENGTH


def shown_program(network: Network) -> Program | None:
    """Return the program of a network with no other layers, else None: other networks show each layer as a node."""
    return watchable(network) if len(network.layers) == 1 else None


def program_scene(spec: Program, edges: int) -> Scene:
    """Return the scene of a program with at most `edges` edges."""
    facts = spec.facts
    program = facts.program
    families = {place.name: place.region.family for place in facts.places}
    counts: dict[str, int] = {}
    for family in families.values():
        counts[family] = counts.get(family, 0) + 1
    chosen = _sampled_edges(facts, edges)
    ports = {name: port for name, port in program.ports.items() if not isinstance(port, Signal)}
    known = {name: latency(facts, name) for name in program.outputs}
    return Scene(
        kind="program",
        nodes=tuple(_node(facts, place) for place in facts.places),
        edges=tuple(_edge(facts, number, wire) for number, wire in enumerate(chosen)),
        ports={
            name: ScenePort(node=facts.numbers[port.region], direction="out" if isinstance(port, Out) else "in")
            for name, port in ports.items()
        },
        populations=counts,
        families=families,
        latency={name: rows for name, rows in known.items() if rows is not None},
        left_out=len(facts.wires) - len(chosen),
    )


def program_frames(spec: Program, scene: Scene, rows: Array) -> tuple[Array, Array, Array]:
    """Return the activity of regions and edges in rows of some streams, over all of them.

    Parameters
    ----------
    rows : output of the watched program, ``[B, T, columns]``

    Returns
    -------
    strength of regions, whether they fired, ``[T, regions]``, and for each edge of the scene 1 if it fired
    """
    columns = replace(spec, watched=True).ports("outputs")
    strength, regions, edges = (
        rows[..., slice(*columns[name])].astype(np.float64) for name in (STRENGTH, REGIONS, EDGES)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        rms = np.sqrt(np.square(strength).mean(0))
    chosen = _sampled_edges(spec.facts, len(scene.edges))
    return rms, regions.max(0) > 0, (edges.max(0)[:, list(chosen)] > 0).astype(np.float64)


def _sampled_edges(facts: Facts, edges: int) -> range:
    count = len(facts.wires)
    return range(0, count, max(1, -(-count // edges))) if edges else range(0)


def _node(facts: Facts, place: Place) -> SceneNode:
    """Return the node of a region: x and y are the last two axes of the canvas, z the axis before them (the frame)."""
    middle = [(low + high - 1) / 2 for low, high in place.region.box]
    widths = [float(high - low) for low, high in place.region.box]
    size = facts.program.canvas.width * len(place.positions)
    return SceneNode(
        id=place.index,
        name=place.name,
        role="region",
        group=place.region.family,
        at=_in_space(middle, 0.0),
        size=size,
        extent=_in_space(widths, 1.0),
        clock=place.region.clock or "",
    )


def _in_space(of: list[float], missing: float) -> tuple[float, float, float]:
    """Return x, y, z of numbers by axis of a canvas, frame first."""
    frame, *space = of
    return space[-1], space[-2] if len(space) > 1 else missing, space[-3] if len(space) > 2 else frame


def _edge(facts: Facts, number: int, wire: int) -> SceneEdge:
    of = facts.wires[wire]
    ends = (facts.places[index].coords.mean(0) for index in (of.reads, of.writes))
    far = float(np.linalg.norm(np.subtract(*ends)))
    back = (of.edge.lag or 0) if facts.program.timing == "stream" else 0
    return SceneEdge(id=number, source=of.reads, target=of.writes, kind=of.rule, length=round(far, 6), delay=1 + back)
