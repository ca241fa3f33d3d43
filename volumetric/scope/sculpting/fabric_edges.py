"""Fabrics of a sculpted network with other edges; weights and states do not depend on edges."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from volumetric.base.errors import SpecError
from volumetric.fabric.layer.edge_rules import ExplicitEdges, Rule
from volumetric.fabric.layer.fabric_layer import Fabric

MOST_EXPLICIT = 500_000
"""Maximum number of edges of a fabric whose edges can be changed: they are listed one by one then."""


def with_edges(spec: Fabric, cut: Set[tuple[int, int]], added: Iterable[tuple[int, int, int]]) -> Fabric:
    """Return a fabric with other edges, which are listed explicitly.

    Parameters
    ----------
    cut : (source, target) by ids of nodes
    added : (source, target, delay)

    Raises
    ------
    SpecError : an edge to cut does not exist, an edge to add exists or is not possible, or there are too many edges
    """
    facts = spec.facts
    if len(facts.senders) > MOST_EXPLICIT:
        raise SpecError(
            f"edges of a fabric of {len(facts.senders):,} edges cannot be changed; at most {MOST_EXPLICIT:,} can"
        )
    receiving = facts.inputs + facts.receivers
    senders, receivers = facts.order[facts.senders], facts.order[receiving]
    pairs = list(zip(senders.tolist(), receivers.tolist(), strict=True))
    existing = set(pairs)
    unknown = sorted(cut - existing)
    if unknown:
        raise SpecError(f"there is no edge from node {unknown[0][0]} to node {unknown[0][1]}")
    natural = spec.graph.distances(facts.coords[receiving], facts.coords[facts.senders])
    own = facts.distance != natural
    kinds: dict[tuple[float | None, int], list[tuple[int, int]]] = {}
    for i, (sender, receiver) in enumerate(pairs):
        if (sender, receiver) not in cut:
            distance = float(facts.distance[i]) if own[i] else None
            kinds.setdefault((distance, int(facts.delay[i])), []).append((receiver, sender))
    for sender, receiver, delay in added:
        if (sender, receiver) in existing and (sender, receiver) not in cut:
            raise SpecError(f"there is an edge from node {sender} to node {receiver} already")
        kinds.setdefault((None, delay), []).append((receiver, sender))
    if not kinds:
        raise SpecError("the last edge of a fabric cannot be cut", hint="mask its nodes instead")
    rules: list[Rule] = [
        ExplicitEdges(edges=tuple(edges), distance=distance, delay=delay) for (distance, delay), edges in kinds.items()
    ]
    return replace(spec, connectivity=tuple(rules))
