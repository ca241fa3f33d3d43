"""Sums of products as one: the gradients of weights that many steps of time read.

``gemm_sum`` is ``Σ_i op(a_i) op(b_i)``, group by group, of operands ``a_0, b_0, a_1, b_1 …``: a sum stays in a
cache, where single products would write each term to memory and add it to what is there. Graphs as they are built
never hold it.
"""

from __future__ import annotations

import dataclasses

from volumetric.runtime.graph.chains import chains_of, products_of
from volumetric.runtime.graph.ops import Graph
from volumetric.runtime.graph.pruning import pruned
from volumetric.runtime.graph.rewriting import Rewriting

MOST = 16
"""Terms of a sum: all their operands are held until it is made, and the last ones should still be in a cache."""


def join_products(graph: Graph) -> Graph:
    """Turn sums of products of the same sizes into `gemm_sum` of up to `MOST` terms each."""
    blocks = [block for chain in chains_of(graph, products_of(graph)) for block in chain.blocks(MOST)]
    if not blocks:
        return graph
    work = Rewriting(graph)
    made = {block.sums[-1].outputs[0]: block for block in blocks}
    gone = {id(node) for block in blocks for node in (*(block.terms if len(block.terms) > 1 else ()), *block.sums)}
    for node in graph.nodes:
        work.where = node.where
        if not node.outputs or node.outputs[0] not in made:
            work.nodes += [] if id(node) in gone else [node]
            continue
        block = made[node.outputs[0]]
        first, inputs = block.terms[0], [i for term in block.terms for i in term.inputs]
        if block.before is None:
            work.emit_to(node.outputs, "gemm_sum", inputs, **first.attrs)
            continue
        shape = work.shape(node.outputs[0])
        total = first.outputs[0] if len(block.terms) == 1 else work.emit("gemm_sum", inputs, shape, **first.attrs)
        work.emit_to(node.outputs, "binary", (block.before.outputs[0], total), name="add")
    return pruned(dataclasses.replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes)))
