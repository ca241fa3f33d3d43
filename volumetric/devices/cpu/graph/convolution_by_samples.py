"""Split convolutions into a few samples at a time, so that their columns stay in cache.

The columns of a batch are many times larger than its images. Writing them all to memory and reading them back takes
longer than the products; in training they would even be stored for the gradient. Here every product recomputes the
columns for a few samples at a time: copying within a cache is cheap.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

from volumetric.graph.ops import Graph, Node
from volumetric.graph.rewriter import GraphRewriter

PIECE_BYTES = 1 << 20
"""Bytes of columns per part: as many as a second-level cache holds."""
WHOLE_BYTES = 8 << 20
"""Columns that are not split: computing them twice would cost more than a larger cache does."""
MOST_PIECES = 32
"""Maximum parts of a product: each costs a few nodes."""


def split_by_samples(graph: Graph, nbytes: int = PIECE_BYTES, whole: int = WHOLE_BYTES) -> Graph:
    """Split products with the columns of `unfold`, and those whose columns `fold` sums, along the samples.

    The results of each sample are unchanged. The gradient of a weight is the sum of the parts' sums, in the order of
    the samples.
    """
    reader = _SampleMatcher(graph, whole)
    work = GraphRewriter(graph)
    gone = reader.dropped_tensors()
    for node in graph.nodes:
        work.where = node.where
        if node.outputs[0] in gone:
            continue
        if node.op == "gemm" and node.inputs[1] in reader.columns:
            _product(work, node, reader.columns[node.inputs[1]], nbytes)
        elif node.op == "fold" and node.outputs[0] in reader.folds:
            _fold(work, node, reader.folds[node.outputs[0]], nbytes)
        else:
            work.nodes.append(node)
    return dataclasses.replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes))


@dataclass(frozen=True, slots=True)
class _Columns:
    """The `unfold` that computes columns, and the number of product groups per sample."""

    unfold: Node
    groups: int


class _SampleMatcher:
    """Finds products that can be split.

    Attributes
    ----------
    columns : tensor of columns as products read it → its source
    folds : image computed by a `fold` → the product that computes its columns
    """

    def __init__(self, graph: Graph, whole: int) -> None:
        self._graph, self._whole = graph, whole
        self._users: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for i in node.inputs:
                self._users.setdefault(i, []).append(node)
        self._maker = {i: node for node in graph.nodes for i in node.outputs}
        self._count = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
        self._written = {graph.tensors[i].key for node in graph.nodes for i in node.outputs}
        self.columns: dict[int, _Columns] = {}
        self.folds: dict[int, Node] = {}
        for node in graph.nodes:
            if node.op == "unfold":
                self.columns.update(self._columns_of(node))
            elif node.op == "fold" and (product := self._product_of(node)) is not None:
                self.folds[node.outputs[0]] = product

    def dropped_tensors(self) -> set[int]:
        """Tensors no longer computed: whole columns."""
        dropped = set(self.columns)
        for columns in self.columns.values():
            dropped.add(columns.unfold.outputs[0])
        for image, product in self.folds.items():
            dropped |= {product.outputs[0], self._maker[image].inputs[0]}
        return dropped

    def _is_large(self, columns: int) -> bool:
        tensor = self._graph.tensors[columns]
        return tensor.shape[0] > 1 and 4 * tensor.size > self._whole

    def _columns_of(self, unfold: Node) -> dict[int, _Columns]:
        """Return all tensors through which products read the columns; none if anything else reads them."""
        whole = unfold.outputs[0]
        key = self._graph.tensors[unfold.inputs[0]].key
        if not self._is_large(whole) or whole in self._graph.outputs or (key is not None and key in self._written):
            return {}
        samples, columns = self._graph.tensors[whole].shape[0], {}
        users = list(self._users.get(whole, []))
        while users:
            node = users.pop()
            if node.op == "reshape" and node.outputs[0] not in self._graph.outputs:
                users += self._users.get(node.outputs[0], [])
                continue
            if node.op != "gemm" or not self._splits_by_sample(node, samples):
                return {}
            columns[node.inputs[1]] = _Columns(unfold, self._graph.tensors[node.inputs[1]].shape[0] // samples)
        return columns

    def _splits_by_sample(self, product: Node, samples: int) -> bool:
        """Whether a product reads columns on its right, group by group, each belonging to one sample."""
        left, right = (self._graph.tensors[i].shape for i in product.inputs[:2])
        if len(product.inputs) != 2 or product.inputs[0] == product.inputs[1] or right[0] % samples:
            return False
        each, groups = right[0] // samples, product.attrs["groups"]
        if groups == right[0]:  # one result per sample, from a left side that all samples share
            return not product.attrs["trans_b"] and each % left[0] == 0
        shared = left[0] == right[0] and each % groups == 0 and product.attrs["activation"] == "linear"
        return shared and not product.attrs["trans_a"] and product.attrs["trans_b"]  # a sum over the samples

    def _product_of(self, fold: Node) -> Node | None:
        """The product that computes the columns of `fold` per sample, if nothing else reads them."""
        i = fold.inputs[0]
        if not self._is_large(i):
            return None
        samples, product = self._graph.tensors[i].shape[0], self._maker.get(i)
        if product is not None and product.op == "reshape" and self._count[i] == 1:
            i = product.inputs[0]
            product = self._maker.get(i)
        if product is None or product.op != "gemm" or self._count[i] != 1 or len(product.inputs) != 2:
            return None
        left, right = (self._graph.tensors[i].shape[0] for i in product.inputs)
        whole = product.attrs["groups"] == right and right % samples == 0
        return product if whole and (right // samples) % left == 0 and not product.attrs["trans_b"] else None


def _sample_ranges(nbytes: int, samples: int, all_bytes: int) -> list[tuple[int, int]]:
    each = max(samples * nbytes // all_bytes, -(-samples // MOST_PIECES), 1)
    return [(at, min(at + each, samples)) for at in range(0, samples, each)]


def _sample_slice(work: GraphRewriter, x: int, first: int, last: int) -> int:
    """``first:last`` of the first axis."""
    _, *rest = shape = work.shape(x)
    return work.emit("slice", (x,), (last - first, *rest), starts=(first, *[0] * len(rest)), stops=(last, *shape[1:]))


def _product(work: GraphRewriter, product: Node, of: _Columns, nbytes: int) -> None:
    """Emit a product with columns: a result for each sample, or a sum over all."""
    [image], attrs = of.unfold.inputs, product.attrs
    samples, tall, wide = work.shape(of.unfold.outputs[0])
    _, deep, _ = work.shape(product.inputs[1])
    groups, high, out = work.shape(product.outputs[0])
    summed = attrs["trans_b"]
    parts: list[int] = []
    for first, last in _sample_ranges(nbytes, samples, 4 * samples * tall * wide):
        many = (last - first) * of.groups
        columns = work.emit(
            "unfold", (_sample_slice(work, image, first, last),), (last - first, tall, wide), **of.unfold.attrs
        )
        flat = work.emit("reshape", (columns,), (many, deep, wide), shape=(many, deep, wide))
        left = product.inputs[0]
        if summed:
            left = _sample_slice(work, left, first * of.groups, last * of.groups)
            parts.append(work.emit("gemm", (left, flat), (groups, high, out), **attrs))
        else:
            parts.append(work.emit("gemm", (left, flat), (many, high, out), **{**attrs, "groups": many}))
    if not summed:
        work.emit_to(product.outputs, "concat", parts, axis=0)
        return
    total = parts[0]
    for part in parts[1:-1]:
        total = work.emit("binary", (total, part), (groups, high, out), name="add")
    work.emit_to(product.outputs, "binary", (total, parts[-1]), name="add")


def _fold(work: GraphRewriter, fold: Node, product: Node, nbytes: int) -> None:
    """Emit a product and the `fold` of its columns."""
    samples, tall, wide = work.shape(fold.inputs[0])
    left, right = product.inputs
    groups = work.shape(right)[0] // samples
    _, deep, _ = work.shape(product.outputs[0])
    parts: list[int] = []
    for first, last in _sample_ranges(nbytes, samples, 4 * samples * tall * wide):
        many = (last - first) * groups
        inner = _sample_slice(work, right, first * groups, last * groups)
        flat = work.emit("gemm", (left, inner), (many, deep, wide), **{**product.attrs, "groups": many})
        columns = work.emit("reshape", (flat,), (last - first, tall, wide), shape=(last - first, tall, wide))
        parts.append(work.emit("fold", (columns,), (last - first, *work.shape(fold.outputs[0])[1:]), **fold.attrs))
    work.emit_to(fold.outputs, "concat", parts, axis=0)
