"""Networks as drawings: nodes in columns by depth, connections by weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volumetric.evolution.genes import ACTIVATIONS
from volumetric.evolution.genome import Genome
from volumetric.network import Network
from volumetric.viz.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POSITIVE, _NEGATIVE = "#2166ac", "#b2182b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A line from one node to another; `weight` decides colour and width, a faint one is switched off."""

    source: str
    target: str
    weight: float = 1.0
    faint: bool = False


def draw_genome(genome: Genome, title: str = "champion") -> Figure:
    """Draw the nodes and connections of a genome: inputs on the left, outputs on the right.

    Blue connections are positive, red ones negative, wider ones stronger, dotted ones disabled.
    """
    inputs, outputs = genome.interface.inputs, genome.interface.outputs
    names = {node: f"in {node}" for node in range(inputs)}
    for node in genome.nodes:
        key = int(node["id"])
        what = f"out {key - inputs}" if key < inputs + outputs else str(key)
        names[key] = f"{what}\n{ACTIVATIONS[node['activation']]}"
    genes = genome.connections
    edges = [
        Edge(source=names[s], target=names[t], weight=w, faint=not on)
        for s, t, w, on in zip(
            genes["source"].tolist(), genes["target"].tolist(), genes["weight"].tolist(), genes["enabled"].tolist(),
            strict=True,
        )
    ]  # fmt: skip
    depths = _depths(genome)
    return _drawn({names[key]: depth for key, depth in depths.items()}, edges, title)


def draw_network(network: Network, title: str = "network") -> Figure:
    """Draw the layers of a network in reading order, with its activation links as dotted lines."""
    names = {
        coord: f"{coord}\n{spec.kind}{' (off)' if coord in network.disabled else ''}"
        for coord, spec in network.layers.items()
    }
    chain = list(names.values())
    edges = [Edge(source=a, target=b) for a, b in zip(["input", *chain], chain, strict=False)]
    edges += [
        Edge(source=names[link.source], target=names[link.target], weight=-1.0, faint=True)
        for link in network.links
        if link.kind == "activation" and link.source in names and link.target in names
    ]
    return _drawn({"input": 0, **{name: depth for depth, name in enumerate(chain, 1)}}, edges, title)


def _depths(genome: Genome) -> dict[int, int]:
    """Column of each node: the longest way to it over enabled connections that do not go round; outputs are last."""
    inputs, outputs = genome.interface.inputs, genome.interface.outputs
    depths = dict.fromkeys(range(inputs), 0) | dict.fromkeys(genome.nodes["id"].tolist(), 1)
    active = genome.connections[genome.connections["enabled"]]
    ends = list(zip(active["source"].tolist(), active["target"].tolist(), strict=True))
    fixed = range(inputs, inputs + outputs)
    for _ in range(len(genome.nodes)):
        changed = False
        for source, target in ends:
            if source not in fixed and target not in fixed and depths[target] <= depths[source] < len(genome.nodes):
                depths[target], changed = depths[source] + 1, True
        if not changed:
            break
    last = 1 + max((depth for key, depth in depths.items() if key not in fixed), default=0)
    return depths | dict.fromkeys(fixed, last)


def _drawn(columns: Mapping[str, int], edges: list[Edge], title: str) -> Figure:
    by_column: dict[int, list[str]] = {}
    for name, column in columns.items():
        by_column.setdefault(column, []).append(name)
    tallest = max(map(len, by_column.values()))
    figure = new_figure(width=2.0 + 1.6 * len(by_column), height=max(3.0, 0.75 * tallest))
    axes = figure.add_subplot()
    places = {
        name: (x, (tallest - len(members)) / 2 + y + 0.15 * (x % 2))
        for x, (_, members) in enumerate(sorted(by_column.items()))
        for y, name in enumerate(members)
    }
    strongest = max((abs(edge.weight) for edge in edges), default=1.0) or 1.0
    for edge in edges:
        (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
        axes.annotate(
            "", (x1, y1), (x0, y0),
            arrowprops={
                "arrowstyle": "->",
                "color": _POSITIVE if edge.weight >= 0 else _NEGATIVE,
                "linewidth": 0.4 + 2.6 * abs(edge.weight) / strongest,
                "alpha": 0.25 if edge.faint else 0.85,
                "linestyle": ":" if edge.faint else "-",
                "shrinkA": 14, "shrinkB": 14,
                "connectionstyle": "arc3,rad=0.15" if abs(x1 - x0) != 1 else "arc3,rad=0",
            },
        )  # fmt: skip
    for name, (x, y) in places.items():
        axes.text(
            x, y, name, ha="center", va="center", fontsize=7,
            bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#444"},
        )  # fmt: skip
    axes.set_xlim(-0.6, len(by_column) - 0.4)
    axes.set_ylim(tallest - 0.3, -0.7)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()
    return figure
