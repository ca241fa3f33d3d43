"""Sums over steps of time as one product, or one reduction, of what the steps made put together.

The gradient of a weight that many ticks read is a sum of a product for each of them. On a GPU these are launches that
each write all of the weight's gradient, and as many that add to it; instead, operands of some ticks are put side by
side, so that the sum is the product's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from volumetric.graph.chains import Block, chains_of, joined, products_of
from volumetric.graph.liveness import roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.rewriting import Rewriting

MOST = 16
"""Terms of a sum: all their operands are held until it is made."""
_BYTES = 64 << 20
"""Memory that the operands on one side of a sum may take."""
_LEAST = 3
"""Terms that are fewer launches together than apart."""
_WORTH = 8 << 20
"""Bytes that may be copied to save a launch: what the memory of an H100 moves in the time that one takes."""


def join_sums(graph: Graph) -> Graph:
    """Make sums of products, and of sums over axes, at once, where that is less than writing and adding each."""
    chains = [*chains_of(graph, products_of(graph)), *chains_of(graph, _sums(graph))]
    blocks = [b for chain in chains for b in chain.blocks(_terms(graph, chain.terms[0])) if len(b.terms) >= _LEAST]
    whole: dict[tuple[tuple[int, ...], int], int] = {}

    def emit(work: Rewriting, block: Block) -> int:
        first, outputs = block.terms[0], block.sums[-1].outputs
        total = work.emit(first.op, _operands(work, block, whole), work.shape(first.outputs[0]), **first.attrs)
        shape = work.shape(outputs[0])
        if block.before is None:
            return work.emit_to(outputs, "reshape", (total,), shape=shape)
        return work.emit("reshape", (total,), shape, shape=shape)

    return joined(graph, blocks, emit)


def _sums(graph: Graph) -> dict[int, Node]:
    """Return sums over axes of what is not written to, by what they make, or by a view of that."""
    root = roots(graph)
    sums = {
        node.outputs[0]: node
        for node in graph.nodes
        if node.op == "reduce" and node.attrs["name"] == "sum" and graph.tensors[root[node.inputs[0]]].key is None
    }
    views = {node.outputs[0] for node in graph.nodes if node.op == "reshape"}
    return sums | {i: sums[root[i]] for i in views if root[i] in sums}


def _terms(graph: Graph, node: Node) -> int:
    """Terms like `node` that are made together; 1: they are better made apart."""
    sizes = [4 * prod(graph.tensors[i].shape) for i in node.inputs]
    moved, saved = 2 * sum(sizes), 4 * 4 * prod(graph.tensors[node.outputs[0]].shape)
    return min(MOST, max(1, _BYTES // max(*sizes, 1))) if moved <= saved + _WORTH else 1


def _operands(work: Rewriting, block: Block, whole: dict[tuple[tuple[int, ...], int], int]) -> list[int]:
    """Put the operands of terms side by side, along an axis that is summed; `whole` are those that are already."""
    operands: list[int] = []
    for place, axis in enumerate(_summed(block.terms[0])):
        parts = tuple(term.inputs[place] for term in block.terms)
        if (parts, axis) not in whole:
            shape = list(work.shape(parts[0]))
            shape[axis] *= len(parts)
            whole[parts, axis] = work.emit("concat", parts, tuple(shape), axis=axis)
        operands.append(whole[parts, axis])
    return operands


def _summed(node: Node) -> Sequence[int]:
    """Axis of each operand along which a node sums."""
    if node.op == "reduce":
        return (node.attrs["axes"][0],)
    return 1 if node.attrs["trans_a"] else 2, 2 if node.attrs["trans_b"] else 1
