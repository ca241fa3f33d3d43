"""Graphs without a lattice: nodes at coordinates of their own, with edges that are told or follow from distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.fabric.body import Body, Output, Population, body
from volumetric.fabric.layer.edges import RULES, Annulus, ExplicitEdges, LocalRadius, Rule, SmallWorld
from volumetric.fabric.layer.graphs import Explicit as Places
from volumetric.fabric.layer.places import Nodes, Region
from volumetric.layers.checks import tuple_of

__all__ = ["Annulus", "Explicit", "ExplicitEdges", "LocalRadius", "Output", "Region", "SmallWorld"]


def Explicit(  # noqa: N802  (reads as what it makes)
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
    coords : of each node
    inputs, outputs : name → nodes
    populations : name → nodes and their cells
    edges : pairs (receiver, sender), as far apart as their nodes
    connectivity : further rules
    """
    explicit_edges = (ExplicitEdges(edges, None),) if len(edges) else ()  # pyright: ignore[reportArgumentType]  (it takes any list)
    rules = (*explicit_edges, *tuple_of("connectivity", connectivity, RULES))
    return body(Places(coords), inputs, outputs, rules, populations)  # pyright: ignore[reportArgumentType]  (as do coordinates)
