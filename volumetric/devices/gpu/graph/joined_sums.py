"""Fuse sums over time steps into one product, or one reduction, of the concatenated operands.

The gradient of a weight read in many ticks is a sum of one product per tick. On a GPU these are launches that each
write the whole gradient, and as many that add to it; instead, operands of some ticks are concatenated, so that the
product itself computes the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.rewriter import GraphRewriter
from volumetric.graph.sum_chains import ChainBlock, join_blocks, product_terms, sum_chains

MOST = 16
"""Maximum terms of a sum: all their operands are held until it is computed."""
_BYTES = 64 << 20
"""Bytes of the operands on one side of a sum."""
_LEAST = 3
"""Minimum number of terms for which this saves launches."""
_WORTH = 8 << 20
"""Bytes that may be copied to save a launch: as much as an H100 moves in the duration of one."""


def join_sums(graph: Graph) -> Graph:
    """Fuse sums of products, and of sums over axes, if that moves less memory than adding each."""
    chains = [*sum_chains(graph, product_terms(graph)), *sum_chains(graph, _sums(graph))]
    blocks = [b for chain in chains for b in chain.blocks(_terms(graph, chain.terms[0])) if len(b.terms) >= _LEAST]
    whole: dict[tuple[tuple[int, ...], int], int] = {}

    def emit(work: GraphRewriter, block: ChainBlock) -> int:
        first, outputs = block.terms[0], block.sums[-1].outputs
        total = work.emit(first.op, _operands(work, block, whole), work.shape(first.outputs[0]), **first.attrs)
        shape = work.shape(outputs[0])
        if block.before is None:
            return work.emit_to(outputs, "reshape", (total,), shape=shape)
        return work.emit("reshape", (total,), shape, shape=shape)

    return join_blocks(graph, blocks, emit)


def _sums(graph: Graph) -> dict[int, Node]:
    """Return the sums over axes that are not overwritten, by their result, or by a view of it."""
    root = view_roots(graph)
    sums = {
        node.outputs[0]: node
        for node in graph.nodes
        if node.op == "reduce" and node.attrs["name"] == "sum" and graph.tensors[root[node.inputs[0]]].key is None
    }
    views = {node.outputs[0] for node in graph.nodes if node.op == "reshape"}
    return sums | {i: sums[root[i]] for i in views if root[i] in sums}


def _terms(graph: Graph, node: Node) -> int:
    """Number of terms like `node` to compute together; 1: separate is better."""
    sizes = [4 * prod(graph.tensors[i].shape) for i in node.inputs]
    moved, saved = 2 * sum(sizes), 4 * 4 * prod(graph.tensors[node.outputs[0]].shape)
    return min(MOST, max(1, _BYTES // max(*sizes, 1))) if moved <= saved + _WORTH else 1


def _operands(work: GraphRewriter, block: ChainBlock, whole: dict[tuple[tuple[int, ...], int], int]) -> list[int]:
    """Concatenate the operands of terms along a summed axis; `whole` are already concatenated."""
    operands: list[int] = []
    for place, axis in enumerate(_summed_axes(block.terms[0])):
        parts = tuple(term.inputs[place] for term in block.terms)
        if (parts, axis) not in whole:
            shape = list(work.shape(parts[0]))
            shape[axis] *= len(parts)
            whole[parts, axis] = work.emit("concat", parts, tuple(shape), axis=axis)
        operands.append(whole[parts, axis])
    return operands


def _summed_axes(node: Node) -> Sequence[int]:
    """Axis of each operand along which a node sums."""
    if node.op == "reduce":
        return (node.attrs["axes"][0],)
    return 1 if node.attrs["trans_a"] else 2, 2 if node.attrs["trans_b"] else 1
