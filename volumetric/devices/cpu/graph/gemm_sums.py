"""Fuse sums of products, such as the gradients of weights read in many time steps.

``gemm_sum`` is ``Σ_i op(a_i) op(b_i)``, group by group, of operands ``a_0, b_0, a_1, b_1 …``: a sum stays in the cache,
whereas separate products would write each term to memory and add it there. Only this rewrite creates it. Terms that
predicates allow to be zero are not computed, either: the predicates' inputs follow the operands, and the attribute
``guards`` has, for each term, the input and its column, or None.
"""

from __future__ import annotations

from typing import NamedTuple

from volumetric.graph.ops import Graph, Node
from volumetric.graph.predicates import Predicate
from volumetric.graph.rewriter import GraphRewriter
from volumetric.graph.sum_chains import ChainBlock, join_blocks, product_terms, sum_chains


class GemmTerm(NamedTuple):
    """A product in a sum: its operands, and the predicate under which it and they are needed."""

    operands: tuple[int, int]
    guard: Predicate | None


MOST = 16
"""Maximum terms of a sum: all operands are held until it is computed, and the last ones should still be in a cache."""


def terms_of(node: Node) -> list[GemmTerm]:
    """Return the terms of a ``gemm_sum``."""
    terms: list[GemmTerm] = []
    for n, predicate in enumerate(node.attrs["guards"]):
        a, b = node.inputs[2 * n : 2 * n + 2]
        terms.append(GemmTerm((a, b), predicate and Predicate(node.inputs[predicate[0]], predicate[1], zeros=True)))
    return terms


def join_products(graph: Graph) -> Graph:
    """Turn sums of products of the same sizes into `gemm_sum` of up to `MOST` terms each."""
    blocks = [block for chain in sum_chains(graph, product_terms(graph)) for block in chain.blocks(MOST)]
    return join_blocks(graph, blocks, _emit)


def _emit(work: GraphRewriter, block: ChainBlock) -> int:
    first, whole = block.terms[0], block.sums[-1].outputs
    inputs = [i for term in block.terms for i in term.inputs]
    term_guards = [term.predicate if term.predicate and term.predicate.zeros else None for term in block.terms]
    place = {tensor: len(inputs) + n for n, tensor in enumerate(dict.fromkeys(of.tensor for of in term_guards if of))}
    predicates = tuple(of and (place[of.tensor], of.column) for of in term_guards)
    inputs += place
    if block.before is None:
        return work.emit_to(whole, "gemm_sum", inputs, **first.attrs, guards=predicates)
    if len(block.terms) == 1:
        return first.outputs[0]
    return work.emit("gemm_sum", inputs, work.shape(whole[0]), **first.attrs, guards=predicates)
