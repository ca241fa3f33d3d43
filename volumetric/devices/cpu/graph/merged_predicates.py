"""In-place sums, and predicates of training: move nodes inside predicates and merge neighbouring predicates.

An addition to a sum that nothing else reads afterwards runs in place, inside the predicate that allows the addend to be
zero: if it is skipped, the sum keeps its contents. ``accumulate`` is such an addition, and ``scatter_add`` adds rows to
the rows of their ids, with or without a predicate; only this rewrite creates them. Their attribute ``stays`` marks a
sum that is needed even if the predicate skips them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

from volumetric.graph.liveness import last_use, view_roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.predicates import Predicate

_FAR = 32
"""Maximum nodes postponed to the end of a predicate: their operands must be kept for them."""


def merge_predicates(graph: Graph) -> Graph:
    """Make additions in place, and put nodes with the same predicate next to each other."""
    nodes = _add_in_place(graph)
    if any(node.predicate is not None and node.predicate.zeros for node in nodes):
        nodes = _group_predicated(graph, nodes)
    return replace(graph, nodes=tuple(nodes))


def _add_in_place(graph: Graph) -> list[Node]:
    """Return the nodes with additions replaced by in-place ones where allowed; row sums regardless of predicates."""
    root, last = view_roots(graph), last_use(graph)
    maker = {i: node for node in graph.nodes for i in node.outputs}
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    # Parts may be views of larger tensors, which must not be written.
    apart = {root[i] for node in graph.nodes if node.op in ("slice", "concat") for i in (*node.inputs, *node.outputs)}
    fixed = {i for i, tensor in enumerate(graph.tensors) if tensor.role != "scratch"}

    def summed(at: int, node: Node) -> Node | None:
        """Return the in-place form of an addition, if it may run in place."""
        if node.op != "binary" or node.attrs["name"] != "add" or node.inputs[1] not in maker:
            return None
        total, term = node.inputs
        same = len({graph.tensors[i].shape for i in (total, term, *node.outputs)}) == 1
        free = root[total] not in apart and root[total] not in fixed and last[root[total]] == at
        if not same or not free or reads[term] != 1 or reads[total] != 1:
            return None
        of, predicate = maker[term], maker[term].predicate
        if predicate is not None and not predicate.zeros:
            return None
        stays = node.predicate is None
        if of.op == "scatter_rows" and node.predicate in (None, predicate) and root[of.inputs[0]] not in fixed:
            attrs = MappingProxyType({"stays": stays})
            return replace(node, op="scatter_add", inputs=(total, *of.inputs), attrs=attrs, predicate=predicate)
        if predicate is None or not stays:
            return None
        return replace(
            node, op="accumulate", attrs=MappingProxyType({**node.attrs, "stays": True}), predicate=predicate
        )

    sums = [summed(at, node) for at, node in enumerate(graph.nodes)]
    gone = {old.inputs[1] for old, new in zip(graph.nodes, sums, strict=True) if new and new.op == "scatter_add"}
    pairs = zip(graph.nodes, sums, strict=True)
    return [new or old for old, new in pairs if gone.isdisjoint(old.outputs)]


def _group_predicated(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Postpone nodes without a predicate between nodes with one, if these do not need them."""
    ordered: list[Node] = []
    waiting: list[Node] = []
    written: set[int] = set()
    predicate: Predicate | None = None

    def close() -> None:
        ordered.extend(waiting)
        waiting.clear()
        written.clear()

    for node in nodes:
        if node.predicate is None and predicate is not None and len(waiting) < _FAR:
            waiting.append(node)
            written.update(node.outputs)
            continue
        keyed = any(graph.tensors[i].key is not None for i in node.outputs)
        if node.predicate != predicate or keyed or not written.isdisjoint((*node.inputs, *node.outputs)):
            close()
        predicate = node.predicate
        ordered.append(node)
    close()
    return ordered
