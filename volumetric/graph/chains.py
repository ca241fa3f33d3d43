"""Terms that are added from left to right, as gradients of what many steps of time read: what can make them as one."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from volumetric.graph.liveness import roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import pruned
from volumetric.graph.rewriting import Rewriting


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring terms of a chain.

    Attributes
    ----------
    before : the addition that made what comes before them, or None
    sums : the additions that add them, to each other and to that
    """

    terms: list[Node]
    before: Node | None
    sums: list[Node]


@dataclass(slots=True)
class Chain:
    """Nodes of one operation and equal sizes, and the additions that sum them from left to right."""

    terms: list[Node]
    sums: list[Node] = field(default_factory=list)

    def takes(self, graph: Graph, term: Node) -> bool:
        """Whether a node is as the others."""
        first = self.terms[0]
        shapes = [[graph.tensors[i].shape for i in node.inputs] for node in (first, term)]
        return first.op == term.op and first.attrs == term.attrs and shapes[0] == shapes[1]

    def blocks(self, most: int) -> Iterator[Block]:
        """Cut it into blocks of at most so many terms."""
        for first in range(0, len(self.terms), most):
            terms = self.terms[first : first + most]
            before = self.sums[first - 2] if first > 1 else None
            yield Block(terms, before, self.sums[max(first - 1, 0) : first + len(terms) - 1])


def chains_of(graph: Graph, terms: Mapping[int, Node]) -> list[Chain]:
    """Return the sums of two terms and more that nobody reads halfway; `terms`: what may be one, by what it makes."""
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    chains: dict[int, Chain] = {}
    for node in graph.nodes:
        if node.op != "binary" or node.attrs["name"] != "add" or any(reads[i] != 1 for i in node.inputs):
            continue
        before, last = node.inputs
        chain = chains.get(before) or (Chain([terms[before]]) if before in terms else None)
        if chain is not None and last in terms and chain.takes(graph, terms[last]):
            chain.terms.append(terms[last])
            chain.sums.append(node)
            chains.pop(before, None)
            chains[node.outputs[0]] = chain
    return list(chains.values())


def products_of(graph: Graph) -> dict[int, Node]:
    """Return products that are terms of sums: of operands that change with each of them and are not written to."""
    root = roots(graph)
    # Columns are made for one product, a few samples at a time, so that they are read from a cache: none may wait.
    columns = {node.outputs[0] for node in graph.nodes if node.op == "unfold"}
    return {
        node.outputs[0]: node
        for node in graph.nodes
        if node.op == "gemm"
        and len(node.inputs) == 2
        and node.attrs["activation"] == "linear"
        and "windows" not in node.attrs
        and {graph.tensors[i].shape[0] for i in node.inputs} == {node.attrs["groups"]}
        and all(graph.tensors[root[i]].key is None for i in node.inputs)  # written to, maybe, before the sum is made
        and columns.isdisjoint(root[i] for i in node.inputs)
    }


def joined(graph: Graph, blocks: Sequence[Block], emit: Callable[[Rewriting, Block], int]) -> Graph:
    """Return the graph with what makes each block as one in the place of its additions.

    Parameters
    ----------
    emit : emits what makes a block, and returns its tensor, which is added to what comes before. Where nothing does, it
        makes what the last addition made
    """
    if not blocks:
        return graph
    work = Rewriting(graph)
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
    return pruned(dataclasses.replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes)))
