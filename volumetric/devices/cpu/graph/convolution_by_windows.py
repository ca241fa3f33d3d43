"""Split convolutions: compute the columns of a few windows at a time, kept in cache for their product."""

from __future__ import annotations

import dataclasses
from collections import Counter
from math import prod

from volumetric.graph.ops import Graph, Node
from volumetric.graph.rewriter import GraphRewriter

PIECE_BYTES = 1 << 20
"""Columns per part: as many as a second-level cache holds."""
_LEAST_COLUMNS = 64
"""Columns that a product needs to be worth its set-up."""


def split_by_windows(graph: Graph, nbytes: int = PIECE_BYTES) -> Graph:
    """Split every `unfold` that only one product reads along its first spatial axis, and the product with it.

    A part is an unfold of fewer windows with a later start: its ``before`` may be negative, which the operation does
    not allow in general, but its CPU kernel does. Results are unchanged.
    """
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    maker = {node.outputs[0]: node for node in graph.nodes}
    work = GraphRewriter(graph)
    dropped: set[int] = set()
    for node in graph.nodes:
        source = maker.get(node.inputs[1]) if node.op == "gemm" and len(node.inputs) == 2 else None
        view = source
        if source is not None and source.op == "reshape" and reads[source.outputs[0]] == 1:
            source = maker.get(source.inputs[0])
        if (
            source is None
            or view is None
            or not _takes_all_columns(graph, node, source, reads)
            or not _split_product(work, node, source, nbytes)
        ):
            work.nodes.append(node)
            continue
        dropped.update((source.outputs[0], view.outputs[0]))
    nodes = tuple(node for node in work.nodes if node.outputs[0] not in dropped)
    return dataclasses.replace(graph, tensors=tuple(work.tensors), nodes=nodes)


def _takes_all_columns(graph: Graph, product: Node, source: Node, reads: Counter[int]) -> bool:
    """Whether `product` takes all columns of `source`, an unfold, and sums over no groups."""
    columns = graph.tensors[product.inputs[1]].shape
    return (
        source.op == "unfold"
        and reads[source.outputs[0]] == 1
        and reads[product.inputs[1]] == 1
        and product.inputs[0] != product.inputs[1]
        and not product.attrs["trans_b"]
        and product.attrs["groups"] == columns[0] >= graph.tensors[product.inputs[0]].shape[0]
        and columns[2] == graph.tensors[source.outputs[0]].shape[2]
    )


def _split_product(work: GraphRewriter, product: Node, source: Node, nbytes: int) -> bool:
    """Emit the partial products and their concatenation; False if one part is enough."""
    attrs = source.attrs
    count, *others = attrs["counts"]
    rest = prod(others)
    all_bytes = 4 * work.tensors[source.outputs[0]].size
    rows = max(count * nbytes // max(all_bytes, 1), -(-_LEAST_COLUMNS // max(rest, 1)), 1)
    if rows >= count or not all_bytes:
        return False
    work.where = product.where
    groups, deep, _ = work.shape(product.inputs[1])
    samples, tall, _ = work.shape(source.outputs[0])
    high = work.shape(product.outputs[0])[1]
    parts: list[int] = []
    for start in range(0, count, rows):
        here = min(rows, count - start)
        inner = attrs["before"][0] - attrs["stride"][0] * start, *attrs["before"][1:]
        windows = {**attrs, "counts": (here, *others), "before": inner}
        columns = work.emit("unfold", source.inputs, (samples, tall, here * rest), **windows)
        shape = groups, deep, here * rest
        flat = work.emit("reshape", (columns,), shape, shape=shape)
        parts.append(work.emit("gemm", (product.inputs[0], flat), (groups, high, here * rest), **product.attrs))
    work.emit_to(product.outputs, "concat", parts, axis=2)
    return True
