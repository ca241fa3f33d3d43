"""Columns of a genome's nodes in drawings: inputs first, hidden nodes by their depth, outputs last."""

from __future__ import annotations

from collections.abc import Sequence

from volumetric.evolution.genome import Genome


def node_columns(genome: Genome) -> dict[int, int]:
    """Return the column of each node: its longest acyclic path from the inputs; outputs are last."""
    inputs, outputs = genome.interface.inputs, genome.interface.outputs
    fixed = range(inputs, inputs + outputs)
    active = genome.connections[genome.connections["enabled"]]
    followers: dict[int, list[int]] = {}
    for source, target in zip(active["source"].tolist(), active["target"].tolist(), strict=True):
        if source not in fixed and target not in fixed:
            followers.setdefault(source, []).append(target)
    nodes = [*range(inputs), *(node for node in genome.nodes["id"].tolist() if node not in fixed)]
    order = _finish_order(nodes, followers)
    place = {node: i for i, node in enumerate(reversed(order))}
    depths = {node: 0 if node < inputs else 1 for node in nodes}
    for node in reversed(order):
        for target in followers.get(node, ()):
            if place[target] > place[node]:  # else the connection is recurrent
                depths[target] = max(depths[target], depths[node] + 1)
    last = 1 + max(depths.values(), default=0)
    return depths | dict.fromkeys(fixed, last)


def _finish_order(nodes: Sequence[int], followers: dict[int, list[int]]) -> list[int]:
    """Return nodes in depth-first postorder."""
    order: list[int] = []
    visited: set[int] = set()
    for start in nodes:
        stack = [] if start in visited else [(start, iter(followers.get(start, ())))]
        visited.add(start)
        while stack:
            node, rest = stack[-1]
            target = next((t for t in rest if t not in visited), None)
            if target is None:
                order.append(node)
                stack.pop()
            else:
                visited.add(target)
                stack.append((target, iter(followers.get(target, ()))))
    return order
