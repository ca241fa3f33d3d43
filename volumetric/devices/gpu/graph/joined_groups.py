"""Fuse products of groups of different sizes into one, if their number dominates their time.

Nodes of a fabric share matrices in groups. A product needs groups of one size, so there is one for each size, with a
copy of its part of the nodes before it and a concatenation after it. With a copy of its matrix for each node all of it
is one launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from volumetric.graph.kernel_axes import first_element, is_contiguous_part, lies_flat
from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune
from volumetric.graph.rewriter import GraphRewriter

MOST_BYTES: Final = 1 << 24
"""Bytes of all copies of the matrices together."""


class _ProductGroup(NamedTuple):
    """A product of some nodes: its matrices, and the number of nodes of each."""

    weight: int
    nodes: int


class _JoinedProducts(NamedTuple):
    """Products side by side: their common input, the first element they read, and the groups."""

    source: int
    first: int
    groups: tuple[_ProductGroup, ...]


def join_groups(graph: Graph) -> Graph:
    """Fuse concatenated products of parts of a tensor with the matrices of groups into one product of all its nodes."""
    root = view_roots(graph)
    makers = {node.outputs[0]: node for node in graph.nodes if node.op != "reshape"}
    reads = Counter(root[i] for node in graph.nodes if node.op != "reshape" for i in node.inputs)
    reads.update(root[i] for i in graph.outputs)
    written = {graph.tensors[i].key for node in graph.nodes for i in node.outputs} - {None}
    work, copies = GraphRewriter(graph), dict[tuple[_ProductGroup, ...], int]()
    for node in graph.nodes:
        match = _match_products(graph, root, makers, node) if node.op == "concat" else None
        fits = match is not None and all(reads[root[m]] == 1 for m in node.inputs)
        if match is None or not fits or any(graph.tensors[root[g.weight]].key in written for g in match.groups):
            work.nodes.append(node)
            continue
        work.where = node.where
        _, batch, wide = graph.tensors[node.outputs[0]].shape
        _, deep, _ = graph.tensors[match.groups[0].weight].shape
        count = sum(work.shape(g.weight)[0] * g.nodes for g in match.groups)
        if 4 * count * deep * wide > MOST_BYTES:
            work.nodes.append(node)
            continue
        if match.groups not in copies:
            copies[match.groups] = _copy_matrices(work, match.groups, count)
        rows = _rows(work, match, (count, batch, deep))
        attrs = {"trans_a": False, "trans_b": False, "groups": count, "activation": "linear"}
        work.emit_to(node.outputs, "gemm", (rows, copies[match.groups]), **attrs)
    if not copies:
        return graph
    return prune(replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes)))


def _match_products(
    graph: Graph, root: Sequence[int], makers: Mapping[int, Node], join: Node
) -> _JoinedProducts | None:
    """Return the products that `join` concatenates, if their inputs are consecutive parts of a tensor."""
    out_shape = graph.tensors[join.outputs[0]].shape
    if len(out_shape) != 3 or not lies_flat(out_shape, join.attrs["axis"]) or len(join.inputs) < 2:
        return None
    groups: list[_ProductGroup] = []
    source, begin, end = -1, 0, 0
    for i in join.inputs:
        product = makers.get(root[i])
        if product is None or not _is_plain(graph, product):
            return None
        part = makers.get(root[product.inputs[0]])
        if part is None or part.op != "slice" or graph.tensors[root[part.inputs[0]]].key is not None:
            return None
        shape, starts = graph.tensors[part.inputs[0]].shape, part.attrs["starts"]
        first = first_element(shape, starts)
        if not is_contiguous_part(shape, starts, part.attrs["stops"]):
            return None
        if source < 0:
            source, begin, end = part.inputs[0], first, first
        rows = graph.tensors[product.inputs[0]].shape[1]
        if part.inputs[0] != source or first != end or rows % out_shape[1]:
            return None
        end += graph.tensors[part.outputs[0]].size
        groups.append(_ProductGroup(product.inputs[1], rows // out_shape[1]))
    return _JoinedProducts(source, begin, tuple(groups))


def _is_plain(graph: Graph, node: Node) -> bool:
    attrs = node.attrs
    if node.op != "gemm" or len(node.inputs) > 2 or attrs["trans_a"] or attrs["trans_b"]:
        return False
    a, b = (graph.tensors[i].shape[0] for i in node.inputs)
    return a == b == attrs["groups"] and attrs["activation"] == "linear" and "windows" not in attrs


def _copy_matrices(work: GraphRewriter, groups: Sequence[_ProductGroup], count: int) -> int:
    """Emit a matrix for each node."""
    parts: list[int] = []
    for weight, nodes in groups:
        sets, deep, wide = work.shape(weight)
        apart = (sets, 1, deep, wide)
        each = work.emit("reshape", (weight,), apart, shape=apart)
        shape = (sets, nodes, deep, wide)
        spread = work.emit("broadcast", (each,), shape, shape=shape)
        flat = (sets * nodes, deep, wide)
        parts.append(work.emit("reshape", (spread,), flat, shape=flat))
    deep, wide = work.shape(parts[0])[1:]
    return work.emit("concat", parts, (count, deep, wide), axis=0)


def _rows(work: GraphRewriter, match: _JoinedProducts, shape: tuple[int, int, int]) -> int:
    """Emit the multiplied nodes, ``[n, B, K]``."""
    whole = work.shape(match.source)
    size = shape[0] * shape[1] * shape[2]
    flat = match.source
    if work.tensors[match.source].size != size:
        row = (work.tensors[match.source].size,)
        flat = work.emit("reshape", (flat,), row, shape=row)
        bounds = {"starts": (match.first,), "stops": (match.first + size,)}
        flat = work.emit("slice", (flat,), (size,), **bounds)
    elif whole == shape:
        return flat
    return work.emit("reshape", (flat,), shape, shape=shape)
