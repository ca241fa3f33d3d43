"""Liveness: which tensors share storage, their last use, and whether in-place writes are in a valid order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from volumetric.base.errors import SpecError
from volumetric.graph.ops import Graph, Node, Tensor


def view_roots(graph: Graph) -> list[int]:
    """Return tensor → the tensor whose storage it is a view of: itself, unless it is the output of a `reshape`.

    Tensors with the same key have different roots here, but are the same buffer.
    """
    root = list(range(len(graph.tensors)))
    for node in graph.nodes:
        if node.op == "reshape":
            root[node.outputs[0]] = root[node.inputs[0]]
    return root


def last_use(graph: Graph) -> list[int]:
    """Return tensor → index of the last node that reads its storage, directly or through a view.

    ``len(graph.nodes)`` for outputs of the graph, which outlive the run; -1 for tensors that no node reads.
    """
    root = view_roots(graph)
    last = [-1] * len(graph.tensors)
    for at, node in enumerate(graph.nodes):
        for i in (*node.inputs, *(node.predicate[:1] if node.predicate else ())):
            last[root[i]] = at
    for i in graph.outputs:
        last[root[i]] = len(graph.nodes)
    return [last[root[i]] for i in range(len(last))]


def dead_after(graph: Graph) -> list[tuple[int, ...]]:
    """Return node → the tensors whose storage is free after it: neither a later node nor the caller reads them."""
    last = last_use(graph)
    for at, node in enumerate(graph.nodes):
        for i in node.outputs:
            last[i] = max(last[i], at)
    dropped: list[list[int]] = [[] for _ in graph.nodes]
    for i, at in enumerate(last):
        if 0 <= at < len(dropped):
            dropped[at].append(i)
    return [tuple(tensors) for tensors in dropped]


def scratch_tensors(graph: Graph) -> list[int]:
    """Return tensors that need separate storage during the run: no inputs, constants, persistent buffers or views."""
    outputs = [i for node in graph.nodes if node.op != "reshape" for i in node.outputs]
    return [i for i in outputs if graph.tensors[i].key is None]


def copy_overwritten_outputs(graph: Graph) -> Graph:
    """Return `graph` with a copy of each persistent buffer that is an output and is overwritten later.

    The copy is made right before that write. Other outputs are unchanged, so most graphs are returned as they are.
    """
    root = view_roots(graph)
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
    """Return buffer → indices of the nodes that write it."""
    writers: dict[str, list[int]] = {}
    for at, node in enumerate(graph.nodes):
        for i in node.outputs:
            if (key := graph.tensors[i].key) is not None:
                writers.setdefault(key, []).append(at)
    return writers


def check_order(graph: Graph) -> None:
    """Raise `SpecError` if a node or an output reads the value of a persistent buffer from before an earlier write."""
    root = view_roots(graph)
    now: dict[str, int] = {}
    for node in graph.nodes:
        for i in node.inputs:
            _check_node_order(graph, root[i], now, f"{node.op} {node.where}".rstrip())
        for i in node.outputs:
            key = graph.tensors[i].key
            if key is not None:
                now[key] = i
    for i in graph.outputs:
        _check_node_order(graph, root[i], now, "an output")


def _check_node_order(graph: Graph, i: int, now: dict[str, int], what: str) -> None:
    key = graph.tensors[i].key
    if key is not None and now.setdefault(key, i) != i:
        raise SpecError(
            f"{what} reads the value of {key!r} from before it was written in place",
            hint="emit the nodes that read it before the update",
        )
