"""Sums of products as one: the gradients of weights that many steps of time read.

``gemm_sum`` is ``Σ_i op(a_i) op(b_i)``, group by group, of operands ``a_0, b_0, a_1, b_1 …``: a sum stays in a
cache, where single products would write each term to memory and add it to what is there. Graphs as they are built
never hold it.
"""

from __future__ import annotations

from volumetric.runtime.graph.chains import Block, chains_of, joined, products_of
from volumetric.runtime.graph.ops import Graph
from volumetric.runtime.graph.rewriting import Rewriting

MOST = 16
"""Terms of a sum: all their operands are held until it is made, and the last ones should still be in a cache."""


def join_products(graph: Graph) -> Graph:
    """Turn sums of products of the same sizes into `gemm_sum` of up to `MOST` terms each."""
    blocks = [block for chain in chains_of(graph, products_of(graph)) for block in chain.blocks(MOST)]
    return joined(graph, blocks, _emit)


def _emit(work: Rewriting, block: Block) -> int:
    first, whole = block.terms[0], block.sums[-1].outputs
    inputs = [i for term in block.terms for i in term.inputs]
    if block.before is None:
        return work.emit_to(whole, "gemm_sum", inputs, **first.attrs)
    if len(block.terms) == 1:
        return first.outputs[0]
    return work.emit("gemm_sum", inputs, work.shape(whole[0]), **first.attrs)
