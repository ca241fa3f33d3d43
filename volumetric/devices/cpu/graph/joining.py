"""Fuse sums of products, such as the gradients of weights read in many time steps.

``gemm_sum`` is ``Σ_i op(a_i) op(b_i)``, group by group, of operands ``a_0, b_0, a_1, b_1 …``: a sum stays in the cache,
whereas separate products would write each term to memory and add it there. Only this rewrite creates it. Terms that
predicates allow to be zero are not computed, either: the predicates' inputs follow the operands, and the attribute
``guards`` has, for each term, the input and its column, or None.
"""

from __future__ import annotations

from typing import NamedTuple

from volumetric.graph.chains import Block, chains_of, joined, products_of
from volumetric.graph.guards import Guard
from volumetric.graph.ops import Graph, Node
from volumetric.graph.rewriting import Rewriting


class Term(NamedTuple):
    """A product in a sum: its operands, and the predicate under which it and they are needed."""

    operands: tuple[int, int]
    guard: Guard | None


MOST = 16
"""Maximum terms of a sum: all operands are held until it is computed, and the last ones should still be in a cache."""


def terms_of(node: Node) -> list[Term]:
    """Return the terms of a ``gemm_sum``."""
    terms: list[Term] = []
    for n, guard in enumerate(node.attrs["guards"]):
        a, b = node.inputs[2 * n : 2 * n + 2]
        terms.append(Term((a, b), guard and Guard(node.inputs[guard[0]], guard[1], zeros=True)))
    return terms


def join_products(graph: Graph) -> Graph:
    """Turn sums of products of the same sizes into `gemm_sum` of up to `MOST` terms each."""
    blocks = [block for chain in chains_of(graph, products_of(graph)) for block in chain.blocks(MOST)]
    return joined(graph, blocks, _emit)


def _emit(work: Rewriting, block: Block) -> int:
    first, whole = block.terms[0], block.sums[-1].outputs
    inputs = [i for term in block.terms for i in term.inputs]
    term_guards = [term.guard if term.guard and term.guard.zeros else None for term in block.terms]
    place = {tensor: len(inputs) + n for n, tensor in enumerate(dict.fromkeys(of.tensor for of in term_guards if of))}
    guards = tuple(of and (place[of.tensor], of.column) for of in term_guards)
    inputs += place
    if block.before is None:
        return work.emit_to(whole, "gemm_sum", inputs, **first.attrs, guards=guards)
    if len(block.terms) == 1:
        return first.outputs[0]
    return work.emit("gemm_sum", inputs, work.shape(whole[0]), **first.attrs, guards=guards)
