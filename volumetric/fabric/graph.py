"""Graphs without a lattice: nodes at arbitrary coordinates, with explicit edges or edges by distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.fabric.body import Body, Output, Population, body
from volumetric.fabric.layer.edge_rules import RULES, Annulus, ExplicitEdges, LocalRadius, Rule, SmallWorld
from volumetric.fabric.layer.node_graphs import NodePlaces as Places
from volumetric.fabric.layer.node_sets import Nodes, Region
from volumetric.layers.field_checks import tuple_of

__all__ = ["Annulus", "Explicit", "ExplicitEdges", "LocalRadius", "Output", "Region", "SmallWorld"]


def Explicit(  # noqa: N802  (reads like a class)
    *,
    coords: Sequence[Sequence[float]],
    inputs: Mapping[str, Nodes],
    outputs: Mapping[str, Nodes | Output],
    populations: Mapping[str, Population],
    edges: Sequence[tuple[int, int]] = (),
    connectivity: Sequence[Rule] = (),
) -> Body:
    """Return a body of nodes at coordinates.

    Parameters
    ----------
    coords : coordinates of each node
    inputs, outputs : name → nodes
    populations : name → nodes and their cells
    edges : pairs (receiver, sender), with the distance of their nodes
    connectivity : further rules for edges
    """
    explicit_edges = (ExplicitEdges(edges, None),) if len(edges) else ()  # pyright: ignore[reportArgumentType]  (it takes any list)
    rules = (*explicit_edges, *tuple_of("connectivity", connectivity, RULES))
    return body(Places(coords), inputs, outputs, rules, populations)  # pyright: ignore[reportArgumentType]  (as do coordinates)
