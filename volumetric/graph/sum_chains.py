"""Sums of many terms from left to right, such as gradients over time steps, and their replacement by one operation."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune
from volumetric.graph.rewriter import GraphRewriter


@dataclass(frozen=True, slots=True)
class ChainBlock:
    """Neighbouring terms of a chain.

    Attributes
    ----------
    before : the addition that sums the terms before the block, or None
    sums : the additions that add the terms of the block to each other and to `before`
    """

    terms: list[Node]
    before: Node | None
    sums: list[Node]


@dataclass(slots=True)
class SumChain:
    """Nodes with the same operation and sizes, and the additions that sum them from left to right."""

    terms: list[Node]
    sums: list[Node] = field(default_factory=list)

    def accepts(self, graph: Graph, term: Node) -> bool:
        """Return whether a node has the operation, attributes and shapes of the others."""
        first = self.terms[0]
        shapes = [[graph.tensors[i].shape for i in node.inputs] for node in (first, term)]
        return first.op == term.op and first.attrs == term.attrs and shapes[0] == shapes[1]

    def blocks(self, most: int) -> Iterator[ChainBlock]:
        """Split the chain into blocks of at most `most` terms."""
        for first in range(0, len(self.terms), most):
            terms = self.terms[first : first + most]
            before = self.sums[first - 2] if first > 1 else None
            yield ChainBlock(terms, before, self.sums[max(first - 1, 0) : first + len(terms) - 1])


def sum_chains(graph: Graph, terms: Mapping[int, Node]) -> list[SumChain]:
    """Return sums of two or more terms whose partial sums nothing else reads; `terms`: output → node of a candidate."""
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    chains: dict[int, SumChain] = {}
    for node in graph.nodes:
        if node.op != "binary" or node.attrs["name"] != "add" or any(reads[i] != 1 for i in node.inputs):
            continue
        before, last = node.inputs
        chain = chains.get(before) or (SumChain([terms[before]]) if before in terms else None)
        if chain is not None and last in terms and chain.accepts(graph, terms[last]):
            chain.terms.append(terms[last])
            chain.sums.append(node)
            chains.pop(before, None)
            chains[node.outputs[0]] = chain
    return list(chains.values())


def product_terms(graph: Graph) -> dict[int, Node]:
    """Return products that can be terms of sums: each has separate operands for all groups, in no persistent buffer."""
    root = view_roots(graph)
    # Columns are computed for one product, a few samples at a time, so that it reads them from a cache: never delay it.
    columns = {node.outputs[0] for node in graph.nodes if node.op == "unfold"}
    return {
        node.outputs[0]: node
        for node in graph.nodes
        if node.op == "gemm"
        and len(node.inputs) == 2
        and node.attrs["activation"] == "linear"
        and "windows" not in node.attrs
        and {graph.tensors[i].shape[0] for i in node.inputs} == {node.attrs["groups"]}
        and all(graph.tensors[root[i]].key is None for i in node.inputs)  # may be overwritten before the sum runs
        and columns.isdisjoint(root[i] for i in node.inputs)
    }


def join_blocks(graph: Graph, blocks: Sequence[ChainBlock], emit: Callable[[GraphRewriter, ChainBlock], int]) -> Graph:
    """Return the graph with the additions of each block replaced by the nodes that `emit` adds.

    Parameters
    ----------
    emit : emits the sum of a block and returns its tensor, which is added to `ChainBlock.before`. If there is no
        `before`, it must write to the output of the last addition
    """
    if not blocks:
        return graph
    work = GraphRewriter(graph)
    by_output = {block.sums[-1].outputs[0]: block for block in blocks}
    gone = {id(node) for block in blocks for node in block.sums}
    for node in graph.nodes:
        work.where = node.where
        block = by_output.get(node.outputs[0]) if node.outputs else None
        if block is None:
            work.nodes += [] if id(node) in gone else [node]
            continue
        total = emit(work, block)
        if block.before is not None:
            work.emit_to(node.outputs, "binary", (block.before.outputs[0], total), name="add")
    return prune(dataclasses.replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes)))
