"""Sums over steps of time are made together on a GPU where that moves less, with the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import device
from volumetric.devices.gpu.graph.joined_sums import MOST, join_sums
from volumetric.graph import Graph, GraphBuilder, interpret


def sums_of(terms: int, **attrs: Any) -> Graph:
    """Σ op(aₜ) op(bₜ), and the sum of the rows of bₜ over t, as a weight's and a bias's gradient are."""
    work = GraphBuilder()
    a_shape, b_shape = (
        ((2, 3, 5) if attrs.get("trans_a") else (2, 5, 3)),
        ((2, 7, 3) if attrs.get("trans_b") else (2, 3, 7)),
    )
    product = bias = -1
    for t in range(terms):
        a = work.affine(work.input(f"a{t}", a_shape), 2.0)
        b = work.affine(work.input(f"b{t}", b_shape), 0.5)
        one, row = work.gemm(a, b, **attrs), work.reduce(b, "sum", (1,))
        row = work.reshape(row, (2, b_shape[2]))
        product, bias = (one, row) if t == 0 else (work.add(product, one), work.add(bias, row))
    return work.finish([product, bias])


def counts(graph: Graph) -> dict[str, int]:
    ops = [node.op for node in graph.nodes]
    return {op: ops.count(op) for op in ("gemm", "reduce", "concat", "binary")}


def agree(graph: Graph) -> None:
    draw = np.random.default_rng(1)
    x = [draw.standard_normal(graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    graphs = device("gpu").graphs()
    for found, want in zip(
        graphs.compile(graph, graphs.store()).run(x), interpret(graph, x, {}, np.float64), strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        (2, {"gemm": 2, "reduce": 2, "concat": 0, "binary": 2}),
        (3, {"gemm": 1, "reduce": 1, "concat": 2, "binary": 0}),
        (MOST + 2, {"gemm": 3, "reduce": 3, "concat": 2, "binary": 4}),
        (MOST + 4, {"gemm": 2, "reduce": 2, "concat": 4, "binary": 2}),
    ],
)
def test_sums_are_made_in_blocks(terms: int, wanted: dict[str, int]) -> None:
    graph = sums_of(terms, trans_a=True)
    assert counts(join_sums(graph)) == wanted
    agree(graph)


@pytest.mark.parametrize("attrs", [{}, {"trans_b": True}, {"trans_a": True, "trans_b": True}])
def test_operands_lie_in_any_way(attrs: dict[str, bool]) -> None:
    graph = sums_of(5, **attrs)
    assert counts(join_sums(graph))["gemm"] == 1
    agree(graph)


def test_what_changes_is_read_elsewhere_or_large_stays() -> None:
    work = GraphBuilder()
    a, b, c, d = (work.input(name, (2, 4, 4)) for name in "abcd")
    each = [work.gemm(a, x) for x in (b, c, d)]
    graph = work.finish([work.add(*each), each[1]])
    assert join_sums(graph) is graph
    work = GraphBuilder()
    kept = work.stored_tensor("kept", (2, 4, 4))
    graph = work.finish([work.add(*(work.gemm(work.input(name, (2, 4, 4)), kept) for name in "abc"))])
    assert join_sums(graph) is graph
    work = GraphBuilder()
    long = [work.input(name, (1, 1 << 21, 1)) for name in "abc"]  # 8 MiB each, for a sum of 4 bytes
    graph = work.finish([work.add(*(work.gemm(x, x, trans_a=True) for x in long))])
    assert join_sums(graph) is graph
