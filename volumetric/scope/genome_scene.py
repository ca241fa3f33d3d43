"""Genomes in a scene: inputs, hidden nodes by depth, and outputs, each depth a row or a sheet of nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.evolution.genes import ACTIVATIONS
from volumetric.evolution.genome import Genome
from volumetric.evolution.node_columns import node_columns
from volumetric.observe.scene import Scene, SceneEdge, SceneNode, ScenePort

_ROW: Final = 12
"""Maximum number of nodes of a depth in one row; more are a sheet."""
_GAP: Final = 2.5
"""Minimum distance between depths, in distances between nodes."""
_LONG: Final = 1.6
"""Minimum length of all depths, in widths of the widest one."""
_SWEEPS: Final = 4


def genome_scene(genome: Genome, *, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> Scene:
    """Return the scene of a genome, with its enabled connections as edges.

    The x of a node is its depth, see `node_columns`. Groups are the activations of nodes. In a recurrent genome all
    connections have a delay of one update.

    Parameters
    ----------
    inputs, outputs : names of these nodes; empty: numbered

    Raises
    ------
    SpecError : the number of names differs from that of the inputs or outputs
    """
    wide, out = genome.interface.inputs, genome.interface.outputs
    for what, names, count in (("inputs", inputs, wide), ("outputs", outputs, out)):
        if names and len(names) != count:
            raise SpecError(f"got {len(names)} names for {count} {what}")
    first = list(inputs) or [f"in {i}" for i in range(wide)]
    last = list(outputs) or [f"out {i}" for i in range(out)]
    records = {int(node["id"]): node for node in genome.nodes}
    keys = [*range(wide), *records]
    index = {key: i for i, key in enumerate(keys)}
    on = genome.connections[genome.connections["enabled"]]
    ends = [(index[s], index[t]) for s, t in zip(on["source"].tolist(), on["target"].tolist(), strict=True)]
    columns = node_columns(genome)
    places = _places([columns[key] for key in keys], ends)
    delay = 1 if genome.interface.recurrent else 0

    def node(i: int, key: int) -> SceneNode:
        role: Literal["input", "cell", "output"] = "input" if key < wide else "output" if key < wide + out else "cell"
        name = first[key] if key < wide else last[key - wide] if key < wide + out else f"node {key}"
        group = "input" if key < wide else ACTIVATIONS[records[key]["activation"]]
        return SceneNode(id=i, name=name, role=role, group=group, at=places[i])

    nodes = tuple(node(i, key) for i, key in enumerate(keys))
    counts: dict[str, int] = {}
    for one in nodes:
        counts[one.group] = counts.get(one.group, 0) + 1
    return Scene(
        kind="genome",
        nodes=nodes,
        edges=tuple(
            SceneEdge(id=i, source=s, target=t, kind="connection", delay=delay) for i, (s, t) in enumerate(ends)
        ),
        ports={"input": ScenePort(node=0, direction="in"), "output": ScenePort(node=index[wide], direction="out")},
        populations=counts,
    )


def connection_weights(genome: Genome) -> Array:
    """Return the weights of the edges of `genome_scene`, float32."""
    return genome.connections["weight"][genome.connections["enabled"]].astype(np.float32)


def node_biases(genome: Genome) -> Array:
    """Return the biases of the nodes of `genome_scene`, 0 for inputs; float32."""
    return np.concatenate([np.zeros(genome.interface.inputs), genome.nodes["bias"]]).astype(np.float32)


def _places(columns: Sequence[int], ends: Sequence[tuple[int, int]]) -> list[tuple[float, float, float]]:
    """Return x, y, z of nodes: those of a column are ordered so that each is near those that it reads."""
    members: dict[int, list[int]] = {}
    for i, column in enumerate(columns):
        members.setdefault(column, []).append(i)
    near: list[list[int]] = [[] for _ in columns]
    for source, target in ends:
        near[source].append(target)
        near[target].append(source)
    share = np.zeros(len(columns))  # place within its column, 0 to 1
    for own in members.values():
        share[own] = (np.arange(len(own)) + 0.5) / len(own)
    fixed = (min(members), max(members))
    for _ in range(_SWEEPS):
        for column in sorted(members):
            own = members[column]
            if column in fixed:
                continue
            own.sort(key=lambda i: float(np.mean(share[near[i]])) if near[i] else 0.5)
            share[own] = (np.arange(len(own)) + 0.5) / len(own)
    places = [(0.0, 0.0, 0.0)] * len(columns)
    counts = {column: len(own) for column, own in members.items()}
    width = {column: n if n <= _ROW else math.ceil(math.sqrt(n)) for column, n in counts.items()}
    gap = max(_GAP, _LONG * max(width.values()) / max(1, *members))
    for column, own in members.items():
        across = width[column]
        down = -(-len(own) // across)
        for j, i in enumerate(own):
            row, place = divmod(j, across)
            places[i] = (column * gap, place - (across - 1) / 2, row - (down - 1) / 2)
    return places
