"""Rewrites of graphs of fixed shape that give the same results with fewer passes over memory."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from volumetric.base._typing import Shape
from volumetric.graph.kernel_axes import (
    BINARY_AXES,
    broadcast_layout,
    first_element,
    is_contiguous_part,
    lies_flat,
)
from volumetric.graph.liveness import view_roots
from volumetric.graph.numeric.activations import ACTIVATIONS
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune


def fuse_activations(graph: Graph) -> Graph:
    """Fuse an activation into the `gemm` before it if nothing else reads the product.

    Run it after differentiation: if a gradient reads the product, the product has two readers and is not fused.
    """
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    products = {
        node.outputs[0]: at
        for at, node in enumerate(graph.nodes)
        if node.op == "gemm" and node.attrs["activation"] == "linear"
    }
    fused: dict[int, Node] = {}
    dropped: set[int] = set()
    for at, node in enumerate(graph.nodes):
        if node.op != "unary" or node.attrs["name"] not in ACTIVATIONS:
            continue
        source = products.get(node.inputs[0])
        if source is not None and reads[node.inputs[0]] == 1:
            product = graph.nodes[source]
            attrs = MappingProxyType({**product.attrs, "activation": node.attrs["name"]})
            fused[source] = dataclasses.replace(product, outputs=node.outputs, attrs=attrs)
            dropped.add(at)
    nodes = tuple(fused.get(at, node) for at, node in enumerate(graph.nodes) if at not in dropped)
    return prune(dataclasses.replace(graph, nodes=nodes))


def fuse_trials(graph: Graph) -> Graph:
    """Fuse an `update` that is not in place with the `sumsq` that is the only reader of its results.

    The two become ``update_squares``, for which devices have a kernel; builders never emit it.
    """
    root = view_roots(graph)
    reads = Counter(root[i] for node in graph.nodes if node.op != "reshape" for i in node.inputs)
    reads.update(root[i] for i in graph.outputs)
    makers = {
        node.outputs[0]: node
        for node in graph.nodes
        if node.op == "update"
        and not node.attrs["in_place"]
        and [reads[i] for i in node.outputs] == [1, *_no_reads(node)]
    }
    sums = {root[node.inputs[0]]: node for node in graph.nodes if node.op == "sumsq" and len(node.inputs) == 1}
    trials = {
        i: dataclasses.replace(makers[i], op="update_squares", outputs=sums[i].outputs)
        for i in makers.keys() & sums.keys()
    }
    dropped = {node.outputs for node in trials.values()}
    nodes = [trials.get(node.outputs[0], node) for node in graph.nodes if node.outputs not in dropped]
    return prune(dataclasses.replace(graph, nodes=tuple(nodes))) if trials else graph


def _no_reads(update: Node) -> list[int]:
    """Return the required number of reads of each slot of a trial: 0."""
    return [0] * (len(update.outputs) - 1)


def join_pads(graph: Graph) -> Graph:
    """Replace a sum of padded tensors by their `concat` if their unpadded parts tile the result along one axis.

    This writes the gradient of a tensor that is read in slices once, instead of padding each part and summing.
    """
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    root = view_roots(graph)
    pads_of = {
        node.outputs[0]: [node]
        for node in graph.nodes
        if node.op == "pad" and graph.tensors[root[node.inputs[0]]].key is None  # may be overwritten before the sum
    }
    parts: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "binary" and node.attrs["name"] == "add" and all(reads[i] == 1 for i in node.inputs):
            padded = [parts.get(i) or pads_of.get(i) for i in node.inputs]
            if all(padded) and len({graph.tensors[i].shape for i in node.inputs}) == 1:
                parts[node.outputs[0]] = [pad for some in padded for pad in some or ()]
    joined = {i: change for i, pads in parts.items() if (change := _concat_of_pads(graph, pads)) is not None}
    if not joined:
        return graph
    nodes = tuple(
        dataclasses.replace(node, **joined[node.outputs[0]]) if node.outputs and node.outputs[0] in joined else node
        for node in graph.nodes
    )
    return prune(dataclasses.replace(graph, nodes=nodes))


def _concat_of_pads(graph: Graph, pads: list[Node]) -> dict[str, object] | None:
    """Return the fields that turn a node into the `concat` of the padded tensors, or None if they do not tile it."""
    shape = graph.tensors[pads[0].outputs[0]].shape
    axes = {axis for pad in pads for axis, size in enumerate(graph.tensors[pad.inputs[0]].shape) if size != shape[axis]}
    if len(axes) != 1:
        return None
    [axis] = axes
    end, inputs = 0, []
    for pad in sorted(pads, key=lambda pad: pad.attrs["before"][axis]):
        if pad.attrs["before"][axis] != end:
            return None
        end += graph.tensors[pad.inputs[0]].shape[axis]
        inputs.append(pad.inputs[0])
    if end != shape[axis]:
        return None
    return {"op": "concat", "inputs": tuple(inputs), "attrs": MappingProxyType({"axis": axis})}


def whole_of_parts(graph: Graph) -> Graph:
    """Replace a `concat` of all parts of a tensor by that tensor.

    This avoids that named states in one tensor are split and joined at every step.
    """
    root = view_roots(graph)
    cuts = {node.outputs[0]: node for node in graph.nodes if node.op == "slice"}

    def rewrite(node: Node) -> Node:
        source = _source_of_parts(graph, root, cuts, node) if node.op == "concat" else None
        if source is None:
            return node
        shape = MappingProxyType({"shape": graph.tensors[node.outputs[0]].shape})
        return dataclasses.replace(node, op="reshape", inputs=(source,), attrs=shape)

    nodes = tuple(map(rewrite, graph.nodes))
    return prune(dataclasses.replace(graph, nodes=nodes)) if nodes != graph.nodes else graph


def _source_of_parts(graph: Graph, root: Sequence[int], cuts: Mapping[int, Node], join: Node) -> int | None:
    """Return the tensor whose contiguous parts, all of them and in order, are the inputs of `join`, or None."""
    output = graph.tensors[join.outputs[0]]
    if join.outputs[0] in graph.outputs or not lies_flat(output.shape, join.attrs["axis"]):
        return None
    slices = [cuts.get(root[i]) for i in join.inputs]
    sources = {None if cut is None else cut.inputs[0] for cut in slices}
    source = sources.pop()
    if source is None or sources or graph.tensors[root[source]].key is not None:
        return None
    shape, end = graph.tensors[source].shape, 0
    for cut in slices:
        assert cut is not None
        starts, stops = cut.attrs["starts"], cut.attrs["stops"]
        if not is_contiguous_part(shape, starts, stops) or first_element(shape, starts) != end:
            return None
        end += graph.tensors[cut.outputs[0]].size
    return source if end == graph.tensors[source].size == output.size else None


def broadcast_in_binary(graph: Graph) -> Graph:
    """Let `binary` read the input of a `broadcast` instead of its output: it broadcasts by itself.

    Broadcasts of persistent buffers stay: the buffer may be written in between.
    """
    root, shapes = view_roots(graph), [tensor.shape for tensor in graph.tensors]
    spread = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op == "broadcast" and graph.tensors[root[node.inputs[0]]].key is None
    }
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = node.inputs
        for place, i in enumerate(inputs if node.op == "binary" else ()):
            other = (*inputs[:place], spread.get(i, i), *inputs[place + 1 :])
            if other != inputs and _fits([shapes[j] for j in other], shapes[node.outputs[0]]):
                inputs = other
        nodes.append(node if inputs == node.inputs else dataclasses.replace(node, inputs=inputs))
    return prune(dataclasses.replace(graph, nodes=tuple(nodes))) if spread else graph


def _fits(operands: Sequence[Shape], result: Shape) -> bool:
    """Return whether operands broadcast to this shape over no more separate axes than `binary` takes."""
    return np.broadcast_shapes(*operands) == result and len(broadcast_layout(result, *operands)[0]) <= BINARY_AXES
