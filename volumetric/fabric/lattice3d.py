"""Graphs on a lattice of width × height × depth, with sets of nodes and rules for edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.fabric.body import Body, Output, Population, body
from volumetric.fabric.layer.edge_rules import Annulus, Columns, ExplicitEdges, LocalRadius, Rule, SmallWorld
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.fabric.layer.node_sets import Corners, Nodes, Region, XBand, YBand, ZBand

__all__ = [
    "Annulus",
    "Columns",
    "Corners",
    "ExplicitEdges",
    "Graph",
    "LocalRadius",
    "Output",
    "Region",
    "SmallWorld",
    "XBand",
    "YBand",
    "ZBand",
]


def Graph(  # noqa: N802  (reads like a class)
    *,
    width: int,
    height: int,
    depth: int,
    populations: Mapping[str, Population],
    wrap: bool = False,
    inputs: Mapping[str, Nodes] | None = None,
    outputs: Mapping[str, Nodes | Output] | None = None,
    connectivity: Sequence[Rule] | None = None,
) -> Body:
    """Return a body of width × height × depth nodes.

    Parameters
    ----------
    width, height, depth : nodes along each axis
    populations : name → nodes and their cells
    wrap : opposite sides are adjacent (a torus)
    inputs : name → nodes that take the input's rows; None: one input, the first column along x
    outputs : name → nodes that form its rows; None: one output, the last column along x
    connectivity : rules, whose edges are merged; explicit edges take precedence; None: ``LocalRadius(1.5)``
    """
    return body(Lattice((width, height, depth), wrap), inputs, outputs, connectivity, populations)
