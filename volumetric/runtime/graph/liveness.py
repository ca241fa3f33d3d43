"""Who shares storage with whom, how long a tensor is needed, and whether in-place writes come in a sound order."""

from __future__ import annotations

from volumetric.errors import SpecError
from volumetric.runtime.graph.ops import Graph


def roots(graph: Graph) -> list[int]:
    """Tensor → the tensor whose storage it is a view of: itself, unless a `reshape` made it.

    Tensors with the same key have different roots here, but are the same buffer.
    """
    root = list(range(len(graph.tensors)))
    for node in graph.nodes:
        if node.op == "reshape":
            root[node.outputs[0]] = root[node.inputs[0]]
    return root


def last_use(graph: Graph) -> list[int]:
    """Tensor → index of the last node that reads its storage, itself or through a view.

    ``len(graph.nodes)`` for what must outlive the run (graph outputs), -1 for what no node reads.
    """
    root = roots(graph)
    last = [-1] * len(graph.tensors)
    for at, node in enumerate(graph.nodes):
        for i in (*node.inputs, *(node.guard[:1] if node.guard else ())):
            last[root[i]] = at
    for i in graph.outputs:
        last[root[i]] = len(graph.nodes)
    return [last[root[i]] for i in range(len(last))]


def scratch(graph: Graph) -> list[int]:
    """Tensors that need storage of their own for a part of the run: no inputs, constants, persistent buffers, views."""
    made = [i for node in graph.nodes if node.op != "reshape" for i in node.outputs]
    return [i for i in made if graph.tensors[i].key is None]


def check_order(graph: Graph) -> None:
    """Raise `SpecError` if a node, or an output, reads a persistent buffer as it was before an earlier write."""
    root = roots(graph)
    now: dict[str, int] = {}
    for node in graph.nodes:
        for i in node.inputs:
            _check_now(graph, root[i], now, f"{node.op} {node.where}".rstrip())
        for i in node.outputs:
            key = graph.tensors[i].key
            if key is not None:
                now[key] = i
    for i in graph.outputs:
        _check_now(graph, root[i], now, "an output")


def _check_now(graph: Graph, i: int, now: dict[str, int], what: str) -> None:
    key = graph.tensors[i].key
    if key is not None and now.setdefault(key, i) != i:
        raise SpecError(
            f"{what} reads {key!r} as it was before it was written in place",
            hint="emit what reads it before the update",
        )
