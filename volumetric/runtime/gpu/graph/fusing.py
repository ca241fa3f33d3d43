"""Rewrites of graphs before they are recorded: what a kernel can read where it lies is not copied first."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from volumetric.runtime.graph.build import pruned
from volumetric.runtime.graph.liveness import roots
from volumetric.runtime.graph.ops import Graph, Node


def fuse_windows(graph: Graph) -> Graph:
    """Let products read the windows of images themselves, where nothing else reads the columns of an `unfold`.

    Such a `gemm` has the image as its second input, and two attributes more: ``windows``, those of the unfold with the
    ``sizes`` of the image, and ``columns``, the shape that the product takes its second input for.
    """
    root = roots(graph)
    unfolds = {node.outputs[0]: node for node in graph.nodes if node.op == "unfold"}
    others = {root[i] for i in graph.outputs}
    for node in graph.nodes:
        if node.op != "reshape":
            others |= {root[i] for at, i in enumerate(node.inputs) if node.op != "gemm" or at != 1}
    fused = {i: node for i, node in unfolds.items() if i not in others}
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

    return pruned(replace(graph, nodes=tuple(map(rewritten, graph.nodes))))
