"""Rewrites that give the same numbers with fewer passes over memory."""

from __future__ import annotations

import dataclasses
from collections import Counter
from types import MappingProxyType

from volumetric.layers.activations import ACTIVATIONS
from volumetric.runtime.graph.build import pruned
from volumetric.runtime.graph.ops import Graph, Node


def fuse_activations(graph: Graph) -> Graph:
    """Let a `gemm` apply the activation that alone reads its result.

    Gradients need that result as it was before, so this comes after differentiation: then it is read twice, and stays.
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
    return pruned(dataclasses.replace(graph, nodes=nodes))
