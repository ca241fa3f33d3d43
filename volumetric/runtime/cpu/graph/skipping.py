"""Guards of training: as little as can be is outside of them, and neighbours have one together.

What is added to a sum that nobody else reads any more is added in place, inside of the guard that lets it be zeros:
where nothing fires, the sum stays as it lies. ``accumulate`` is such an addition, which graphs as they are built never
hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from volumetric.runtime.graph.guards import Guard
from volumetric.runtime.graph.liveness import last_use, roots
from volumetric.runtime.graph.ops import Graph, Node

_FAR = 32
"""Nodes that are put off until a guard ends: what they read waits for them."""


def skip_together(graph: Graph) -> Graph:
    """Let sums take what guards leave out in place, and put nodes of one guard one behind the other."""
    if not any(_zeros(node) for node in graph.nodes):
        return graph
    return replace(graph, nodes=tuple(_gathered(graph, _accumulating(graph))))


def _zeros(node: Node) -> Guard | None:
    return node.guard if node.guard is not None and node.guard.zeros else None


def _accumulating(graph: Graph) -> list[Node]:
    """Return the nodes; additions in place stand for those that may be."""
    root, last = roots(graph), last_use(graph)
    maker = {i: node for node in graph.nodes for i in node.outputs}
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    # Parts may lie in what they are parts of: nobody may write there.
    apart = {root[i] for node in graph.nodes if node.op in ("slice", "concat") for i in (*node.inputs, *node.outputs)}
    fixed = {i for i, tensor in enumerate(graph.tensors) if tensor.role != "scratch"}
    found: list[Node] = []
    for at, node in enumerate(graph.nodes):
        if node.op == "binary" and node.attrs["name"] == "add" and node.guard is None:
            total, term = node.inputs
            guard = _zeros(maker[term]) if term in maker else None
            same = len({graph.tensors[i].shape for i in (total, term, *node.outputs)}) == 1
            free = root[total] not in apart and root[total] not in fixed and last[root[total]] == at
            if guard is not None and same and free and total != term and reads[term] == 1 and reads[total] == 1:
                node = replace(node, op="accumulate", guard=guard)
        found.append(node)
    return found


def _gathered(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Put off nodes without a guard that stand between nodes of one, and that these do not need."""
    found: list[Node] = []
    waiting: list[Node] = []
    made: set[int] = set()
    guard: Guard | None = None

    def close() -> None:
        found.extend(waiting)
        waiting.clear()
        made.clear()

    for node in nodes:
        if node.guard is None and guard is not None and len(waiting) < _FAR:
            waiting.append(node)
            made.update(node.outputs)
            continue
        keyed = any(graph.tensors[i].key is not None for i in node.outputs)
        if node.guard != guard or keyed or not made.isdisjoint((*node.inputs, *node.outputs)):
            close()
        guard = node.guard
        found.append(node)
    close()
    return found
