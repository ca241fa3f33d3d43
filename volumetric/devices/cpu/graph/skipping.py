"""Sums in place, and guards of training: as little as can be is outside of them, and neighbours have one together.

What is added to a sum that nobody else reads any more is added in place, inside of the guard that lets it be zeros:
where nothing fires, the sum stays as it lies. ``accumulate`` is such an addition, and ``scatter_add`` one of rows to
those of their ids, guarded or not; graphs as they are built hold neither. Their attribute ``stays`` tells that the
sum is wanted also where the guard leaves them out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

from volumetric.graph.guards import Guard
from volumetric.graph.liveness import last_use, roots
from volumetric.graph.ops import Graph, Node

_FAR = 32
"""Nodes that are put off until a guard ends: what they read waits for them."""


def skip_together(graph: Graph) -> Graph:
    """Let sums be added to in place, and put nodes of one guard one behind the other."""
    nodes = _in_place(graph)
    if any(node.guard is not None and node.guard.zeros for node in nodes):
        nodes = _gathered(graph, nodes)
    return replace(graph, nodes=tuple(nodes))


def _in_place(graph: Graph) -> list[Node]:
    """Return the nodes; additions in place stand for those that may be. Rows are so whatever guards there are."""
    root, last = roots(graph), last_use(graph)
    maker = {i: node for node in graph.nodes for i in node.outputs}
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    # Parts may lie in what they are parts of: nobody may write there.
    apart = {root[i] for node in graph.nodes if node.op in ("slice", "concat") for i in (*node.inputs, *node.outputs)}
    fixed = {i for i, tensor in enumerate(graph.tensors) if tensor.role != "scratch"}

    def summed(at: int, node: Node) -> Node | None:
        """What an addition becomes, if it may be made in place."""
        if node.op != "binary" or node.attrs["name"] != "add" or node.inputs[1] not in maker:
            return None
        total, term = node.inputs
        same = len({graph.tensors[i].shape for i in (total, term, *node.outputs)}) == 1
        free = root[total] not in apart and root[total] not in fixed and last[root[total]] == at
        if not same or not free or reads[term] != 1 or reads[total] != 1:
            return None
        of, guard = maker[term], maker[term].guard
        if guard is not None and not guard.zeros:
            return None
        stays = node.guard is None
        if of.op == "scatter_rows" and node.guard in (None, guard) and root[of.inputs[0]] not in fixed:
            attrs = MappingProxyType({"stays": stays})
            return replace(node, op="scatter_add", inputs=(total, *of.inputs), attrs=attrs, guard=guard)
        if guard is None or not stays:
            return None
        return replace(node, op="accumulate", attrs=MappingProxyType({**node.attrs, "stays": True}), guard=guard)

    sums = [summed(at, node) for at, node in enumerate(graph.nodes)]
    gone = {old.inputs[1] for old, new in zip(graph.nodes, sums, strict=True) if new and new.op == "scatter_add"}
    pairs = zip(graph.nodes, sums, strict=True)
    return [new or old for old, new in pairs if gone.isdisjoint(old.outputs)]


def _gathered(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Put off nodes without a guard that stand between nodes of one, and that these do not need."""
    ordered: list[Node] = []
    waiting: list[Node] = []
    written: set[int] = set()
    guard: Guard | None = None

    def close() -> None:
        ordered.extend(waiting)
        waiting.clear()
        written.clear()

    for node in nodes:
        if node.guard is None and guard is not None and len(waiting) < _FAR:
            waiting.append(node)
            written.update(node.outputs)
            continue
        keyed = any(graph.tensors[i].key is not None for i in node.outputs)
        if node.guard != guard or keyed or not written.isdisjoint((*node.inputs, *node.outputs)):
            close()
        guard = node.guard
        ordered.append(node)
    close()
    return ordered
