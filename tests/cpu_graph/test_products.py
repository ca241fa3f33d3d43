"""Matrix products in every form that the CPU has: panels, dots, strips; with groups, edges, pieces of k."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from tests.graph.agreement import agree
from volumetric.devices.cpu.graph.cpu_program import CpuProgram
from volumetric.graph import GraphBuilder


def product(
    a: np.ndarray, b: np.ndarray, bias: np.ndarray | None, trans_a: bool, trans_b: bool, groups: int, threads: int
) -> np.ndarray:
    work = GraphBuilder()
    inputs = [a, b] if bias is None else [a, b, bias]
    ids = [work.input("x", x.shape) for x in inputs]
    found = work.emit("gemm", ids, trans_a=trans_a, trans_b=trans_b, groups=groups, activation="silu")
    device = graphs(threads)
    program: CpuProgram = device.compile(work.finish(found), device.store())
    return program.run(inputs)[0]


SHAPES = [
    (1, 1, 1),
    (1, 130, 67),
    (2, 65, 1030),
    (3, 8, 900),
    (7, 100, 3),
    (7, 48, 70),
    (13, 64, 33),
    (40, 95, 1700),
    (300, 17, 80),
]
GROUPS = [(1, 1, 1), (3, 3, 3), (1, 4, 4), (4, 1, 4), (4, 4, 1), (4, 4, 2), (2, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("counts", GROUPS)
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_products(shape: tuple[int, int, int], counts: tuple[int, int, int], trans_a: bool, trans_b: bool) -> None:
    (m, n, k), (ga, gb, gc) = shape, counts
    random = np.random.default_rng(m * n + k)
    left, right = random.standard_normal((ga, m, k)), random.standard_normal((gb, k, n))
    bias = random.standard_normal(n).astype(np.float32) if k % 2 else None
    want = np.zeros((gc, m, n))
    for g in range(max(ga, gb)):
        want[g % gc] += left[g % ga] @ right[g % gb]
    want += 0 if bias is None else bias
    want /= 1 + np.exp(-want)
    a, b = left.astype(np.float32), right.astype(np.float32)
    a = np.ascontiguousarray(a.swapaxes(1, 2)) if trans_a else a
    b = np.ascontiguousarray(b.swapaxes(1, 2)) if trans_b else b
    alone, together = (product(a, b, bias, trans_a, trans_b, gc, threads) for threads in (1, 3))
    agree(alone, want.astype(np.float32), "product", 3e-6)
    np.testing.assert_array_equal(alone, together)


def test_a_row_does_not_depend_on_its_neighbours_in_the_tile() -> None:
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 40, 70), (1, 70, 100)))
    whole = product(a, b, None, False, False, 1, 1)
    part = product(a[:, 13:29], b, None, False, False, 1, 1)
    np.testing.assert_array_equal(whole[:, 13:29], part)
