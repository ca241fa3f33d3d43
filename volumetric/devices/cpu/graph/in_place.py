"""States that an operation updates in place, without a copy afterwards."""

from __future__ import annotations

from dataclasses import replace

from volumetric.graph.ops import Graph, Node

IN_PLACE = {"distance_attend": {1: 5, 2: 6, 3: 7}}
"""Operation → outputs that its kernel may write over inputs: index of the output → index of the input."""


def write_in_place(graph: Graph) -> Graph:
    """Write outputs that are assigned to the buffer of an overwritable input directly into that buffer."""
    tensors, gone = list(graph.tensors), dict[int, int]()
    for node in graph.nodes:
        for i, j in IN_PLACE.get(node.op, {}).items():
            output, read = node.outputs[i], node.inputs[j]
            readers = [n for n in graph.nodes if output in n.inputs]
            if len(readers) != 1 or output in graph.outputs or not _replaces(graph, readers[0], read):
                continue
            if sum(n.inputs.count(read) for n in graph.nodes) == 1 and read not in graph.outputs:
                tensors[output] = replace(tensors[output], key=tensors[read].key, role=tensors[read].role)
                gone[readers[0].outputs[0]] = output
    if not gone:
        return graph
    nodes = tuple(
        replace(node, inputs=tuple(gone.get(i, i) for i in node.inputs))
        for node in graph.nodes
        if gone.keys().isdisjoint(node.outputs)
    )
    return replace(graph, tensors=tuple(tensors), nodes=nodes, outputs=tuple(gone.get(i, i) for i in graph.outputs))


def _replaces(graph: Graph, node: Node, read: int) -> bool:
    """Whether a node only assigns a value to the buffer that `read` belongs to."""
    key = graph.tensors[read].key
    return node.op == "assign" and len(node.inputs) == 1 and key is not None and node.attrs["key"] == key
