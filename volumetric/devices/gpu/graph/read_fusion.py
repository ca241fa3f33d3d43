"""Rewrites of graphs before recording: kernels read operands in place instead of copies.

No rewrite makes a node read later than before, because a persistent buffer could have been written in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.graph.few_rows import PARTS, TENSORS, supports_few_rows
from volumetric.devices.gpu.kernels.graph.grouped_gemm import sizes_of
from volumetric.graph.kernel_axes import first_element, is_contiguous_part, lies_flat
from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node, Tensor
from volumetric.graph.pruning import prune


def fuse_windows(graph: Graph) -> Graph:
    """Let products read the windows of images themselves, if nothing else reads the columns of an `unfold`.

    Such a `gemm` has the image as its second input, and two more attributes: ``windows``, those of the unfold with the
    ``sizes`` of the image, and ``columns``, the shape of the second input as the product sees it.
    """
    root = view_roots(graph)
    unfolds = {node.outputs[0]: node for node in graph.nodes if node.op == "unfold"}
    others = {root[i] for i in graph.outputs}
    for node in graph.nodes:
        if node.op != "reshape":
            others |= {root[i] for at, i in enumerate(node.inputs) if node.op != "gemm" or at != 1}
    fused = {
        i: node for i, node in unfolds.items() if i not in others and graph.tensors[root[node.inputs[0]]].key is None
    }
    if not fused:
        return graph

    def rewritten(node: Node) -> Node:
        unfold = fused.get(root[node.inputs[1]]) if node.op == "gemm" else None
        if unfold is None:
            return node
        image = unfold.inputs[0]
        attrs = {
            **node.attrs,
            "windows": {**unfold.attrs, "sizes": graph.tensors[image].shape[2:]},
            "columns": graph.tensors[node.inputs[1]].shape,
        }
        return replace(node, inputs=(node.inputs[0], image, *node.inputs[2:]), attrs=MappingProxyType(attrs))

    return prune(replace(graph, nodes=tuple(map(rewritten, graph.nodes))))


def fuse_folds(graph: Graph) -> Graph:
    """Turn a `fold` of the columns that a product computed into a product with windows, if all strides are 1.

    With the taps of the weight in reverse, ``fold(weightᵀ g)`` is a convolution of g, whose columns are then read in
    place. With larger strides most taps of that would multiply nothing, so such folds stay. The weight is reversed by a
    separate operation, ``turn_taps``: a [G, outs, ins · taps] → [G, ins, outs · taps], taps of ``count`` in reverse.
    """
    root = view_roots(graph)
    reads = Counter(root[i] for node in graph.nodes if node.op != "reshape" for i in node.inputs)
    reads.update(root[i] for i in graph.outputs)
    makers = {node.outputs[0]: node for node in graph.nodes if node.op == "gemm"}
    tensors = list(graph.tensors)
    folds: dict[int, tuple[Node, int]] = {}
    for node in graph.nodes:
        product = makers.get(root[node.inputs[0]]) if node.op == "fold" else None
        if product is not None and reads[product.outputs[0]] == 1 and _is_transposed_product(product, node, tensors):
            folds[product.outputs[0]] = node, _append_tensor(tensors, "image", _image_shape(product, node, tensors))
    if not folds:
        return graph
    views = {fold.outputs[0]: image for fold, image in folds.values()}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.outputs[0] in folds:
            nodes += _as_convolution(tensors, node, *folds[node.outputs[0]])
        elif node.outputs[0] in views:
            shape = tensors[node.outputs[0]].shape
            view = views[node.outputs[0]]
            nodes.append(replace(node, op="reshape", inputs=(view,), attrs=MappingProxyType({"shape": shape})))
        else:
            nodes.append(node)
    return prune(replace(graph, tensors=tuple(tensors), nodes=tuple(nodes)))


def _is_transposed_product(product: Node, fold: Node, tensors: Sequence[Tensor]) -> bool:
    attrs = product.attrs
    return (
        product.op == "gemm"
        and tensors[product.inputs[1]].shape[0] == attrs["groups"]
        and len(product.inputs) == 2
        and (attrs["trans_a"], attrs["trans_b"], attrs["activation"]) == (True, False, "linear")
        and "windows" not in attrs
        and set(fold.attrs["stride"]) == {1}
    )


def _image_shape(product: Node, fold: Node, tensors: Sequence[Tensor]) -> Shape:
    deep = tensors[product.inputs[0]].shape[2]
    return product.attrs["groups"], deep // prod(fold.attrs["kernel"]), prod(fold.attrs["sizes"])


def _as_convolution(tensors: list[Tensor], product: Node, fold: Node, image: int) -> Sequence[Node]:
    """Nodes that compute the image instead of the columns."""
    weight, g = product.inputs
    taps = prod(fold.attrs["kernel"])
    groups, outs, deep = tensors[weight].shape
    turned = _append_tensor(tensors, "turned weight", (groups, deep // taps, outs * taps))
    reach = zip(fold.attrs["dilation"], fold.attrs["kernel"], fold.attrs["before"], strict=True)
    windows = {
        **{name: fold.attrs[name] for name in ("kernel", "stride", "dilation")},
        "before": tuple(d * (k - 1) - b for d, k, b in reach),
        "counts": fold.attrs["sizes"],
        "sizes": fold.attrs["counts"],
    }
    columns = (product.attrs["groups"], outs * taps, prod(fold.attrs["sizes"]))
    attrs = MappingProxyType({**product.attrs, "trans_a": False, "windows": windows, "columns": columns})
    turn = Node(op="turn_taps", inputs=(weight,), outputs=(turned,), attrs={"count": taps}, where=fold.where)
    return turn, Node(op="gemm", inputs=(turned, g), outputs=(image,), attrs=attrs, where=fold.where)


def fuse_parts(graph: Graph) -> Graph:
    """Let a `concat` read parts of tensors in place, which a `slice` would copy first.

    Such a `concat` has the whole tensors as its inputs, and one more attribute: ``parts``, for each of them the index
    of the first element, and the number of elements. Parts and the result must be contiguous; neighbours are one part.
    """
    places = _SliceSources(graph)

    def rewritten(at: int, node: Node) -> Node:
        if node.op != "concat" or not lies_flat(graph.tensors[node.outputs[0]].shape, node.attrs["axis"]):
            return node
        parts = [places.of(i, at) for i in node.inputs]
        if parts == [(i, 0, graph.tensors[i].size) for i in node.inputs]:
            return node
        joined = parts[:1]
        for part in parts[1:]:
            tensor, start, size = joined[-1]
            if part[:2] == (tensor, start + size):
                joined[-1] = tensor, start, size + part[2]
            else:
                joined.append(part)
        attrs = {**node.attrs, "parts": tuple((start, size) for _, start, size in joined)}
        return replace(node, inputs=tuple(i for i, _, _ in joined), attrs=MappingProxyType(attrs))

    return prune(replace(graph, nodes=tuple(rewritten(at, node) for at, node in enumerate(graph.nodes))))


class _SliceSources:
    """Contiguous parts: for each tensor its source through slices, and copies of tensors that no node computes."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._root = graph, view_roots(graph)
        self._makers = {node.outputs[0]: node for node in graph.nodes if node.op in ("slice", "unary")}
        self._written: dict[str | None, int] = {}
        for at, node in enumerate(graph.nodes):
            for i in node.outputs:
                self._written.setdefault(graph.tensors[i].key, at)

    def of(self, i: int, at: int) -> tuple[int, int, int]:
        """Return the source of tensor `i` for node `at`: the tensor, its first element, and their number."""
        source, first = i, 0
        while (step := self._step(source)) is not None:
            source, first = step[0], first + step[1]
        key = self._graph.tensors[self._root[source]].key
        size = self._graph.tensors[i].size
        return (i, 0, size) if key is not None and self._written.get(key, at) < at else (source, first, size)

    def _step(self, i: int) -> tuple[int, int] | None:
        """Return the tensor that tensor `i` is a contiguous part of, and the first element."""
        maker, tensors = self._makers.get(self._root[i]), self._graph.tensors
        if maker is None:
            return None
        [source], attrs = maker.inputs, maker.attrs
        if maker.op == "unary":
            return (source, 0) if (attrs["name"], attrs["alpha"], attrs["beta"]) == ("affine", 1.0, 0.0) else None
        shape, starts = tensors[source].shape, attrs["starts"]
        return (source, first_element(shape, starts)) if is_contiguous_part(shape, starts, attrs["stops"]) else None


def fuse_joins(graph: Graph) -> Graph:
    """Let products of few rows read the parts of their left side in place, unless others read the `concat` too.

    Such a product is a ``gemm_of_parts``: b [, bias], and the tensors that contain the parts. Its attributes are those
    of the `gemm`; ``parts``: the index of the tensor, the first element, and groups of each of them; ``a_groups``: all
    groups of the left side; ``biased``.
    """
    root = view_roots(graph)
    reads = Counter(root[i] for node in graph.nodes if node.op != "reshape" for i in node.inputs)
    reads.update(root[i] for i in graph.outputs)
    joins = {node.outputs[0]: node for node in graph.nodes if node.op == "concat"}

    def rewritten(node: Node) -> Node:
        join = joins.get(root[node.inputs[0]]) if node.op == "gemm" else None
        if join is None or reads[join.outputs[0]] != 1:
            return node
        return _gemm_over_parts(graph, root, node, join) or node

    return prune(replace(graph, nodes=tuple(map(rewritten, graph.nodes))))


def _gemm_over_parts(graph: Graph, root: Sequence[int], node: Node, join: Node) -> Node | None:
    """Return a product that reads the inputs of `join`; None if it cannot."""
    shapes = [graph.tensors[i].shape for i in node.inputs]
    a_groups, m, k = shapes[0]
    product = sizes_of(shapes[0], shapes[1], graph.tensors[node.outputs[0]].shape, node.attrs)
    contiguous = lies_flat(graph.tensors[join.outputs[0]].shape, join.attrs["axis"])
    persistent = any(graph.tensors[root[i]].key is not None for i in join.inputs)
    if not contiguous or persistent or not supports_few_rows(product, node.attrs):
        return None
    places = join.attrs.get("parts") or [(0, graph.tensors[i].size) for i in join.inputs]
    there = [(root[i], start, size) for i, (start, size) in zip(join.inputs, places, strict=True) if size]
    tensors = list(dict.fromkeys(i for i, _, _ in there))
    if len(there) > PARTS or len(tensors) > TENSORS or any(size % (m * k) for _, _, size in there):
        return None
    parts = tuple((tensors.index(i), start, size // (m * k)) for i, start, size in there)
    attrs = {**node.attrs, "parts": parts, "a_groups": a_groups, "biased": len(node.inputs) > 2}
    return replace(node, op="gemm_of_parts", inputs=(*node.inputs[1:], *tensors), attrs=MappingProxyType(attrs))


def _append_tensor(tensors: list[Tensor], name: str, shape: Shape) -> int:
    tensors.append(Tensor(name=name, shape=shape))
    return len(tensors) - 1
