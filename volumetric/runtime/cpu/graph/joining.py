"""Sums of products as one: the gradients of weights that many steps of time read.

``gemm_sum`` is ``Σ_i op(a_i) op(b_i)``, group by group, of operands ``a_0, b_0, a_1, b_1 …``: a sum stays in a
cache, where single products would write each term to memory and add it to what is there. Graphs as they are built
never hold it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

from volumetric.runtime.cpu.graph.rewriting import Rewriting
from volumetric.runtime.graph.liveness import roots
from volumetric.runtime.graph.ops import Graph, Node
from volumetric.runtime.graph.pruning import pruned

MOST = 16
"""Terms of a sum: all their operands are held until it is made, and the last ones should still be in a cache."""


@dataclasses.dataclass(slots=True)
class _Chain:
    """Products, and the additions that sum them from left to right."""

    terms: list[Node]
    sums: list[Node] = dataclasses.field(default_factory=list)

    def takes(self, graph: Graph, term: Node) -> bool:
        """Whether a product has the sizes of the others."""
        first = self.terms[0]
        shapes = [[graph.tensors[i].shape for i in node.inputs] for node in (first, term)]
        return first.attrs == term.attrs and shapes[0] == shapes[1]

    def blocks(self) -> Iterator[tuple[list[Node], Node | None, Node]]:
        """Yield terms that become one sum, the addition that made what comes before, and the one that adds them."""
        for first in range(0, len(self.terms), MOST):
            terms = self.terms[first : first + MOST]
            before = self.sums[first - 2] if first > 1 else None
            yield terms, before, self.sums[first + len(terms) - 2]


def join_products(graph: Graph) -> Graph:
    """Turn sums of products of the same sizes into `gemm_sum` of up to `MOST` terms each."""
    chains = _chains(graph)
    if not chains:
        return graph
    work = Rewriting(graph)
    made = {sum_.outputs[0]: (terms, before) for chain in chains for terms, before, sum_ in chain.blocks()}
    alone = {id(terms[0]) for terms, _ in made.values() if len(terms) == 1}
    gone = {id(node) for chain in chains for node in (*chain.terms, *chain.sums)} - alone
    for node in graph.nodes:
        work.where = node.where
        if not node.outputs or node.outputs[0] not in made:
            work.nodes += [] if id(node) in gone else [node]
            continue
        terms, before = made[node.outputs[0]]
        inputs = [i for term in terms for i in term.inputs]
        if before is None:
            work.emit_to(node.outputs, "gemm_sum", inputs, **terms[0].attrs)
            continue
        shape = work.shape(node.outputs[0])
        total = terms[0].outputs[0] if len(terms) == 1 else work.emit("gemm_sum", inputs, shape, **terms[0].attrs)
        work.emit_to(node.outputs, "binary", (before.outputs[0], total), name="add")
    return pruned(dataclasses.replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes)))


def _chains(graph: Graph) -> list[_Chain]:
    reads = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
    root = roots(graph)
    # Columns are made for one product, a few samples at a time, so that they are read from a cache: none may wait.
    columns = {node.outputs[0] for node in graph.nodes if node.op == "unfold"}
    products = {
        node.outputs[0]: node
        for node in graph.nodes
        if node.op == "gemm"
        and len(node.inputs) == 2
        and node.attrs["activation"] == "linear"
        and {graph.tensors[i].shape[0] for i in node.inputs} == {node.attrs["groups"]}
        and all(graph.tensors[root[i]].key is None for i in node.inputs)  # written to, maybe, before the sum is made
        and columns.isdisjoint(root[i] for i in node.inputs)
    }
    found: dict[int, _Chain] = {}
    for node in graph.nodes:
        if node.op != "binary" or node.attrs["name"] != "add" or any(reads[i] != 1 for i in node.inputs):
            continue
        before, last = node.inputs
        chain = found.get(before) or (_Chain([products[before]]) if before in products else None)
        if chain is not None and last in products and chain.takes(graph, products[last]):
            chain.terms.append(products[last])
            chain.sums.append(node)
            found.pop(before, None)
            found[node.outputs[0]] = chain
    return list(found.values())
