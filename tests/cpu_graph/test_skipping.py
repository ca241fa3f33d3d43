"""Sums of what guards leave out: where nothing fires they stay as they lie, and the products in them are not made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.base._typing import Array
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.devices.cpu.graph.gemm_sums import MOST, join_products
from volumetric.devices.cpu.graph.merged_predicates import merge_predicates
from volumetric.graph import Graph, GraphBuilder, interpret

TERMS = MOST + 3


def summed(kind: str) -> Graph:
    """Terms that count where a flag is 1, from operands that are made there; and a term that always counts."""
    work = GraphBuilder()
    flags = work.input("flags", (1, TERMS))
    total = work.unary(work.input("x", (10, 70) if kind == "rows" else (2, 5, 70)), "tanh")
    for n in range(TERMS):
        flag = work.part(flags, 1, n, n + 1)
        a, b = work.input("a", (2, 4, 5)), work.input("b", (2, 4, 70))
        with work.predicated(flags, n, zeros=True):
            a = work.binary("mul_nonzero", work.affine(a, 2.0), work.reshape(flag, (1, 1, 1)))
            term = work.gemm(a, work.affine(b, 0.5), trans_a=True)
            if kind == "rows":
                rows = work.reshape(term, (10, 70))
                term = work.scatter_rows(rows, work.constant((np.arange(10) * n % 7).astype(np.int32)), 10)
            term = work.unary(term, "abs") if kind == "in place" else term
        total = work.add(total, term) if n or kind != "products" else term
    return work.finish([total, work.affine(total, 2.0)])


def numbers(graph: Graph, fires: list[int]) -> list[Array]:
    draw = np.random.default_rng(1)
    given = [draw.standard_normal(graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    flags = next(n for n, i in enumerate(graph.inputs) if graph.tensors[i].name == "flags")
    given[flags] = np.isin(np.arange(TERMS), fires)[None].astype(np.float32)
    return given


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["products", "in place", "rows"])
@pytest.mark.parametrize("fires", [[], [0], [2, 17], list(range(TERMS))])
def test_sums_are_those_of_what_fires(kind: str, fires: list[int]) -> None:
    graph = summed(kind)
    x = numbers(graph, fires)
    plain = replace(graph, nodes=tuple(replace(node, predicate=None) for node in graph.nodes))
    found: list[list[Array]] = []
    for threads, of in ((1, graph), (3, graph), (1, plain)):
        device = graphs(threads)
        program = device.compile(of, device.store())
        program.run(numbers(graph, list(range(TERMS))))
        program.store.scratch.arena[...] = 0xFF  # NaN, where nothing is written
        found.append(program.run(x))
    for other in found[1:]:
        for got, want in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(found[0][0], interpret(graph, x, {}, np.float64)[0], rtol=2e-5, atol=2e-5)


def test_little_is_outside_of_guards() -> None:
    """Additions are inside, of rows too; products are no steps of their own; neighbours have one guard."""
    for kind, products in (("products", 2), ("in place", 0), ("rows", 0)):
        draft = build_steps(merge_predicates(join_products(summed(kind))))
        names = [step.name for step in draft.steps]
        assert names.count("guard") == TERMS
        assert names.count("unless") == 0
        assert names.count("gemm") == products
        assert names.count("binary") <= 1
