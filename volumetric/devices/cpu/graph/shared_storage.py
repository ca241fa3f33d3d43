"""Aliasing of a graph's tensors: parts that need no copy.

A contiguous `slice` is a view of its source. The inputs of a contiguous `concat` can be computed directly in its
result: so the rows read by a tick are those written by the tick before, one place further. Two storages are joined if
their live ranges overlap only in the joined part, where both hold the same numbers.
"""

from __future__ import annotations

from volumetric.devices.cpu.step_builder import SharedStorage
from volumetric.graph.kernel_axes import first_element, is_contiguous_part, lies_flat
from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node

_WORTH = 2
"""Maximum ratio of a storage to its part: all of it stays allocated as long as the part is needed."""


def shared_storage(graph: Graph) -> SharedStorage:
    """Return the storage of each tensor, including those of `reshape`."""
    root = view_roots(graph)
    sizes = [4 * tensor.size for tensor in graph.tensors]
    shared = SharedStorage(of=list(range(len(sizes))), start=[0] * len(sizes), sizes=dict(enumerate(sizes)))
    outputs = {root[i] for i in graph.outputs}
    fixed = {i for i in range(len(sizes)) if graph.tensors[i].key is not None} | graph.constants.keys()
    inputs = set(graph.inputs)
    alone = fixed | outputs | inputs
    """Storages of this size are placed outside the arena."""
    members = {i: [i] for i in range(len(sizes))}

    def join(gone: int, into: int, delta: int) -> None:
        """Join a storage into another one, `delta` bytes from its start, which may be negative."""
        first = min(0, delta)
        if first:
            for i in members[into]:
                shared.start[i] -= first
        for i in members[gone]:
            shared.of[i], shared.start[i] = into, shared.start[i] + delta - first
        end = max(shared.sizes[into], delta + shared.sizes.pop(gone))
        shared.sizes[into] = end - first
        members[into] += members.pop(gone)

    for node in graph.nodes:
        if node.op == "reshape" or (node.op == "slice" and _is_view(graph, node, fixed, root, outputs)):
            [x], [y] = node.inputs, node.outputs
            if node.op == "slice" and shared.of[x] not in inputs and shared.sizes[shared.of[x]] > _WORTH * sizes[y]:
                continue
            join(y, shared.of[x], shared.start[x] + (_first_byte(graph, node) if node.op == "slice" else 0))
        elif node.op in ("accumulate", "scatter_add"):
            total, [y] = node.inputs[0], node.outputs
            join(y, shared.of[total], shared.start[total])
        elif node.op == "concat" and node.outputs[0] not in alone and _is_flat(graph, node):
            at, [y] = 0, node.outputs
            for x in node.inputs:
                gone, into, delta = shared.of[x], shared.of[y], shared.start[y] + at - shared.start[x]
                meets = max(0, delta), min(shared.sizes[into], delta + shared.sizes[gone])
                free = gone != into and alone.isdisjoint(members[gone]) and 0 < shared.sizes[gone] <= _WORTH * sizes[x]
                if free and meets == (shared.start[y] + at, shared.start[y] + at + sizes[x]):
                    join(gone, into, delta)
                at += sizes[x]
    return shared


def _is_view(graph: Graph, node: Node, fixed: set[int], root: list[int], outputs: set[int]) -> bool:
    """Whether a slice may be read in place: a buffer might be written before, and an output has its own memory."""
    [x], [y] = node.inputs, node.outputs
    whole = graph.tensors[x].shape
    return (
        root[x] not in fixed
        and root[y] not in outputs
        and graph.tensors[y].size > 0
        and is_contiguous_part(whole, node.attrs["starts"], node.attrs["stops"])
    )


def _first_byte(graph: Graph, node: Node) -> int:
    """Byte at which a slice begins."""
    return 4 * first_element(graph.tensors[node.inputs[0]].shape, node.attrs["starts"])


def _is_flat(graph: Graph, node: Node) -> bool:
    """Whether a concat puts whole tensors one after the other in memory."""
    return lies_flat(graph.tensors[node.outputs[0]].shape, node.attrs["axis"])
