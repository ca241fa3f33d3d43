"""Counts the arithmetic of graphs."""

from __future__ import annotations

from volumetric.graph.ops import Graph


def flops_of(graph: Graph) -> int:
    """Return the floating-point operations of products and recurrent steps."""
    total = 0
    for node in graph.nodes:
        shapes = [graph.tensors[i].shape for i in (*node.inputs, *node.outputs)]
        if node.op == "gemm":
            a, b, c = shapes[0], shapes[1], graph.tensors[node.outputs[0]].shape
            depth = a[1] if node.attrs["trans_a"] else a[2]
            total += 2 * max(a[0], b[0], c[0]) * c[1] * c[2] * depth
        elif node.op in ("recurrent", "recurrent_grad"):
            batch, length, _ = shapes[0]
            wide, size = next(s for s in shapes if len(s) == 2 and s[0] % s[1] == 0 and s[0] != batch)
            total += 2 * batch * length * wide * size
    return total
