"""Graphs without a lattice: nodes at coordinates of their own, with edges that are told or follow from distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.fabric.body import Body, Output, Population, body
from volumetric.layers.fabric.edges import Annulus, ExplicitEdges, LocalRadius, Rule, SmallWorld
from volumetric.layers.fabric.graphs import Explicit as Places
from volumetric.layers.fabric.places import Nodes, Region

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
    rules = (*((ExplicitEdges(tuple(map(tuple, edges)), None),) if edges else ()), *connectivity)  # pyright: ignore[reportArgumentType]  (pairs)
    return body(Places(tuple(tuple(map(float, at)) for at in coords)), inputs, outputs, rules, populations)
