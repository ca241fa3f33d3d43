"""Who shares storage with whom, how long a tensor is needed, and whether in-place writes come in a sound order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from volumetric.base.errors import SpecError
from volumetric.graph.ops import Graph, Node, Tensor


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


def dropped_after(graph: Graph) -> list[tuple[int, ...]]:
    """Node → the tensors whose storage nothing reads after it, nor a caller after the run, as `last_use` says."""
    last = last_use(graph)
    for at, node in enumerate(graph.nodes):
        for i in node.outputs:
            last[i] = max(last[i], at)
    dropped: list[list[int]] = [[] for _ in graph.nodes]
    for i, at in enumerate(last):
        if 0 <= at < len(dropped):
            dropped[at].append(i)
    return [tuple(tensors) for tensors in dropped]


def scratch(graph: Graph) -> list[int]:
    """Tensors that need storage of their own for a part of the run: no inputs, constants, persistent buffers, views."""
    outputs = [i for node in graph.nodes if node.op != "reshape" for i in node.outputs]
    return [i for i in outputs if graph.tensors[i].key is None]


def copy_overwritten_outputs(graph: Graph) -> Graph:
    """Return `graph` with a copy of each persistent buffer that an output shows as it was before a later write.

    The copy is taken right before that write. Outputs that no later write reaches are left as they are, so most graphs
    come back unchanged.
    """
    root = roots(graph)
    writes = _writes(graph)
    tensors, outputs = list(graph.tensors), list(graph.outputs)
    copies: dict[int, int] = {}
    before: dict[int, list[Node]] = {}
    views: list[Node] = []

    def add_copy(i: int, like: Tensor) -> int:
        tensors.append(replace(tensors[i], name="copy", key=None, role="scratch", shape=like.shape))
        return len(tensors) - 1

    for n, output in enumerate(graph.outputs):
        buffer = root[output]
        written = writes.get(tensors[buffer].key or "", [])
        later = [at for at in written if at > max((w for w in written if buffer in graph.nodes[w].outputs), default=-1)]
        if not later:
            continue
        if buffer not in copies:
            whole = tensors[buffer]
            copies[buffer] = add_copy(buffer, whole)
            bounds = {"starts": (0,) * len(whole.shape), "stops": whole.shape}
            node = Node(op="slice", inputs=(buffer,), outputs=(copies[buffer],), attrs=MappingProxyType(bounds))
            before.setdefault(later[0], []).append(node)
        outputs[n] = copies[buffer]
        if tensors[output].shape != tensors[buffer].shape:
            outputs[n] = add_copy(buffer, tensors[output])
            attrs = MappingProxyType({"shape": tensors[output].shape})
            views.append(Node(op="reshape", inputs=(copies[buffer],), outputs=(outputs[n],), attrs=attrs))
    if not copies:
        return graph
    nodes = [one for at, node in enumerate(graph.nodes) for one in (*before.get(at, ()), node)]
    return replace(graph, tensors=tuple(tensors), nodes=(*nodes, *views), outputs=tuple(outputs))


def _writes(graph: Graph) -> Mapping[str, list[int]]:
    """Buffer → the nodes that write it, by their place."""
    writers: dict[str, list[int]] = {}
    for at, node in enumerate(graph.nodes):
        for i in node.outputs:
            if (key := graph.tensors[i].key) is not None:
                writers.setdefault(key, []).append(at)
    return writers


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
