"""Dead-node elimination."""

from __future__ import annotations

from types import MappingProxyType

from volumetric.graph.ops import Graph, Node


def prune(graph: Graph) -> Graph:
    """Return `graph` without nodes that no output and no persistent buffer depends on, with renumbered tensors."""
    needed = set(graph.outputs)
    keyed = {i for i, tensor in enumerate(graph.tensors) if tensor.key is not None}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs) or not keyed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(node.inputs, node.predicate[:1] if node.predicate else ())
    inputs = [i for i in graph.inputs if i not in graph.derived or i in needed]
    used = needed.union(inputs, *(node.outputs for node in nodes))
    if len(nodes) == len(graph.nodes) and len(used) == len(graph.tensors) and len(inputs) == len(graph.inputs):
        return graph
    number = {old: new for new, old in enumerate(sorted(used))}
    return Graph(
        tensors=tuple(graph.tensors[i] for i in sorted(used)),
        nodes=tuple(_renumber_node(node, number) for node in reversed(nodes)),
        inputs=tuple(number[i] for i in inputs),
        outputs=tuple(number[i] for i in graph.outputs),
        constants=MappingProxyType({number[i]: v for i, v in graph.constants.items() if i in number}),
        derived=MappingProxyType({number[i]: what for i, what in graph.derived.items() if i in number}),
        max_rows=graph.max_rows,
        whole_sequences=graph.whole_sequences,
        detached=frozenset(number[i] for i in graph.detached if i in number),
        flush=graph.flush,
        products=graph.products,
    )


def _renumber_node(node: Node, number: dict[int, int]) -> Node:
    return Node(  # three times as fast as `replace`, and graphs have many
        op=node.op,
        inputs=tuple([number[i] for i in node.inputs]),
        outputs=tuple([number[i] for i in node.outputs]),
        attrs=node.attrs,
        where=node.where,
        mixes=node.mixes,
        tail=node.tail,
        predicate=node.predicate and node.predicate._replace(tensor=number[node.predicate.tensor]),
    )
