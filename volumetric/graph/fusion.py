"""Fusion into products: a norm joins the products that read it; a sum or soft cap joins the product before it.

The rules read only the data flow and apply to any network: a pre-norm transformer layer becomes five nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from volumetric.graph.ops import Graph, Node
from volumetric.graph.row_fusion import fuse_on_rows


def fuse_rows(graph: Graph, operations: Collection[str]) -> Graph:
    """Fuse neighbours into each `linear`, and sequences of nodes into the fused row `operations` of the device."""
    for rule in (_norm_into_linear, _sum_into_linear, _softcap_into_linear):
        graph = dataclasses.replace(graph, nodes=tuple(rule(graph)))
    return fuse_on_rows(graph, operations)


def mark_tail(graph: Graph) -> Graph:
    """Mark the nodes after the last one that mixes rows: they may run on the last row only."""
    last = max((at for at, node in enumerate(graph.nodes) if node.mixes), default=-1)
    nodes = (dataclasses.replace(node, tail=at > last) for at, node in enumerate(graph.nodes))
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _norm_into_linear(graph: Graph) -> list[Node]:
    """Fuse a norm that only products read into them: the norm of a row costs less than a separate node.

    A norm that is also an output of the graph stays as a node after the products.
    """
    nodes: list[list[Node]] = [[node] for node in graph.nodes]
    for i, norm in enumerate(graph.nodes):
        if norm.op != "norm":
            continue
        readers = list(graph.readers(norm.outputs[0]))
        if not readers or not all(_reads_as_factor(graph.nodes[j], norm.outputs[0]) for j in readers):
            continue
        for j in readers:
            reader = nodes[j][0]
            by_role: dict[str, int | None] = dict(zip(reader.attrs["roles"], reader.inputs, strict=True))
            by_role |= {
                "x": norm.inputs[0],
                "norm.weight": norm.input_by_role("weight"),
                "norm.bias": norm.input_by_role("bias"),
            }
            attrs = norm.attrs
            nodes[j][0] = _with_inputs(
                reader, by_role, norm=attrs["kind"], norm_eps=attrs["eps"], norm_unit_offset=attrs["unit_offset"]
            )
        nodes[i].clear()
        if norm.outputs[0] in graph.outputs:
            nodes[readers[-1]].append(norm)
    return [node for some in nodes for node in some]


def _reads_as_factor(node: Node, tensor: int) -> bool:
    return (
        node.op == "linear"
        and node.attrs["norm"] is None
        and node.input_by_role("x") == tensor
        and node.inputs.count(tensor) == 1
    )


def _sum_into_linear(graph: Graph) -> list[Node]:
    """Fuse ``x W + r`` into one node if only this sum reads the product and r exists before it."""
    nodes: list[Node | None] = list(graph.nodes)
    made_by = {node.outputs[0]: i for i, node in enumerate(graph.nodes)}
    for i, total in enumerate(graph.nodes):
        if not is_sum(graph, total):
            continue
        for value, other in (total.inputs, total.inputs[::-1]):
            at = made_by.get(value)
            if at is None or value == other or made_by.get(other, -1) > at:
                continue
            product = nodes[at]
            if product is None or product.predicate != total.predicate or not _can_take(graph, product, value):
                continue
            by_role = dict(zip(product.attrs["roles"], product.inputs, strict=True))
            by_role = {"x": by_role.pop("x"), "residual": other, **by_role}
            nodes[at] = dataclasses.replace(_with_inputs(product, by_role, residual=True), outputs=total.outputs)
            made_by[total.outputs[0]] = at
            nodes[i] = None
            break
    return [node for node in nodes if node is not None]


def is_sum(graph: Graph, node: Node) -> bool:
    """Return whether a node adds two values of a call with the same shape."""
    tensors = [graph.tensors[i] for i in (*node.inputs, *node.outputs)]
    alike = len({t.shape for t in tensors}) == 1 and all(t.role in ("input", "scratch") for t in tensors)
    return node.op == "binary" and node.attrs["name"] == "add" and alike


def _can_take(graph: Graph, node: Node, value: int) -> bool:
    """Return whether `node` is a product without an epilogue whose result only one node reads."""
    return (
        node.op == "linear"
        and node.outputs[0] == value
        and not node.attrs["residual"]
        and node.attrs["softcap"] is None
        and node.attrs["combine"] == "concat"
        and value not in graph.outputs
        and len(list(graph.readers(value))) == 1
    )


def _softcap_into_linear(graph: Graph) -> list[Node]:
    """Fuse ``cap · tanh(x W / cap)`` into one node if nothing else reads the product."""
    nodes: list[Node | None] = list(graph.nodes)
    made_by = {node.outputs[0]: i for i, node in enumerate(graph.nodes)}
    for last in graph.nodes:
        places = _functions(graph, made_by, last)[:3]
        functions = [graph.nodes[at] for at in places]
        if [node.attrs["name"] for node in functions] != ["affine", "tanh", "affine"]:
            continue
        cap, scale, value = last.attrs["alpha"], functions[2].attrs, functions[2].inputs[0]
        at = made_by.get(value)
        product = None if at is None else nodes[at]
        if at is None or product is None or not _can_take(graph, product, value):
            continue
        plain = scale["alpha"] == 1 / cap and scale["beta"] == last.attrs["beta"] == 0
        if plain and {node.predicate for node in functions} == {product.predicate}:
            attrs = MappingProxyType({**product.attrs, "softcap": cap})
            nodes[at] = dataclasses.replace(product, outputs=last.outputs, attrs=attrs)
            for place in places:
                nodes[place] = None
    return [node for node in nodes if node is not None]


def _functions(graph: Graph, made_by: Mapping[int, int], last: Node) -> list[int]:
    """Return the indices of a chain of element-wise functions up to `last`, last first, without other readers."""
    numbers: list[int] = []
    node = last
    while node.op == "unary":
        numbers.append(made_by[node.outputs[0]])
        value = node.inputs[0]
        if value not in made_by or value in graph.outputs or len(list(graph.readers(value))) > 1:
            break
        node = graph.nodes[made_by[value]]
    return numbers


def _with_inputs(node: Node, by_role: Mapping[str, int | None], **attrs: Any) -> Node:
    """Return a node with other inputs, by role, and other attributes."""
    inputs = {role: i for role, i in by_role.items() if i is not None}
    changed = MappingProxyType({**node.attrs, **attrs, "roles": tuple(inputs)})
    return dataclasses.replace(node, inputs=tuple(inputs.values()), attrs=changed)
