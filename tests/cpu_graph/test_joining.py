"""Sums of products are one operation where they may be, with the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.devices.cpu.graph.gemm_sums import MOST, join_products
from volumetric.graph import Graph, GraphBuilder, interpret


def sum_of(terms: int, *, groups: int = 3, m: int = 5, n: int = 70, k: int = 4, trans: bool = True) -> Graph:
    work = GraphBuilder()
    total = -1
    for _ in range(terms):
        a = work.affine(work.input("a", (groups, k, m) if trans else (groups, m, k)), 2.0)
        b = work.affine(work.input("b", (groups, k, n)), 0.5)
        product = work.gemm(a, b, trans_a=trans)
        total = product if total < 0 else work.add(total, product)
    return work.finish([total])


def numbers(graph: Graph) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [draw.standard_normal(graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]


def counts(graph: Graph) -> dict[str, int]:
    ops = [node.op for node in graph.nodes]
    return {op: ops.count(op) for op in ("gemm", "gemm_sum", "binary")}


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        (1, {"gemm": 1, "gemm_sum": 0, "binary": 0}),
        (2, {"gemm": 0, "gemm_sum": 1, "binary": 0}),
        (MOST, {"gemm": 0, "gemm_sum": 1, "binary": 0}),
        (MOST + 1, {"gemm": 1, "gemm_sum": 1, "binary": 1}),
        (2 * MOST + 3, {"gemm": 0, "gemm_sum": 3, "binary": 2}),
    ],
)
def test_a_sum_of_products_is_made_in_blocks(terms: int, wanted: dict[str, int]) -> None:
    graph = sum_of(terms)
    assert counts(join_products(graph)) == wanted
    x = numbers(graph)
    found = []
    for threads in (1, 3):
        device = graphs(threads)
        found.append(device.compile(graph, device.store()).run(x)[0])
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], interpret(graph, x, {}, np.float64)[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "sizes", [{"m": 1, "n": 1, "k": 1}, {"groups": 1, "k": 900}, {"trans": False, "m": 17, "n": 3}]
)
def test_sums_of_all_sizes(sizes: dict[str, Any]) -> None:
    graph = sum_of(5, **sizes)
    device, x = graphs(2), numbers(graph)
    found = device.compile(graph, device.store()).run(x)[0]
    np.testing.assert_allclose(found, interpret(graph, x, {}, np.float64)[0], rtol=2e-5, atol=1e-4)


def test_what_is_read_elsewhere_or_differs_stays() -> None:
    work = GraphBuilder()
    a, b, c = (work.input(name, (2, 4, 4)) for name in "abc")
    first, second, third = work.gemm(a, b), work.gemm(b, c), work.gemm(a, c, trans_a=True)
    graph = work.finish([work.add(work.add(first, second), third), first])
    assert join_products(graph) is graph
    kept = work.stored_tensor("kept", (2, 4, 4))
    graph = work.finish([work.add(work.gemm(a, kept), work.gemm(b, kept))])
    assert join_products(graph) is graph


def test_products_with_columns_wait_for_no_other() -> None:
    """The gradient of a convolution's weight, in pieces: all columns held at once would not fit a cache."""
    work = GraphBuilder()
    total = -1
    fields = {"kernel": (3,), "stride": (1,), "dilation": (1,), "before": (0,), "counts": (6,)}
    for _ in range(3):
        columns = work.emit("unfold", (work.input("x", (1, 2, 8)),), **fields)[0]
        product = work.gemm(work.input("g", (1, 4, 6)), columns, trans_b=True)
        total = product if total < 0 else work.add(total, product)
    assert counts(join_products(work.finish([total]))) == {"gemm": 3, "gemm_sum": 0, "binary": 2}
