"""Graphs whose products round both sides to float16."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from volumetric.graph.ops import Graph, Node, ProductType


def with_products(graph: Graph, products: ProductType) -> Graph:
    """Return `graph`, the bodies of its scans included, with products of this type: see `Graph.products`."""
    if graph.products == products:
        return graph

    def rewritten(node: Node) -> Node:
        body = node.attrs.get("body")
        if not isinstance(body, Graph):
            return node
        return replace(node, attrs=MappingProxyType({**node.attrs, "body": with_products(body, products)}))

    return replace(graph, nodes=tuple(map(rewritten, graph.nodes)), products=products)
