"""Pools of lines around the widths of vectors have the bits of the reference, whatever lies at the ends of a line."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.base._typing import Array
from volumetric.graph import GraphBuilder, interpret

WINDOWS = [
    (kernel, stride, dilation, before)
    for kernel in (1, 2, 3, 5)
    for stride in (1, 2, 3)
    for dilation in (1, 2)
    for before in (0, 1, (kernel - 1) * dilation // 2)
    if before <= kernel // 2
]
LINES = (15, 16, 17, 31, 32, 33, 34, 35, 63, 64, 66, 97)


def bits(x: Array) -> Array:
    return np.where(np.isnan(x), np.float32(np.nan), x).astype(np.float32).view(np.uint32)


@pytest.mark.thorough
def test_pools_of_lines_are_those_of_the_reference() -> None:
    draw = np.random.default_rng(5)
    for number, (kernel, stride, dilation, before) in enumerate(dict.fromkeys(WINDOWS)):
        device = graphs((1, 3)[number % 2])
        for size in LINES[number % 6 :: 6]:
            count = (size + 2 * before - dilation * (kernel - 1) - 1) // stride + 1
            fields = {"kernel": (kernel,), "stride": (stride,), "dilation": (dilation,), "before": (before,)}
            odd = draw.choice(np.array([1, 2, 2, 3, -1, 0.0, -0.0, np.inf, -np.inf, np.nan], np.float32), (2, 3, size))
            whole, back = (draw.integers(-9, 9, (2, 3, n)).astype(np.float32) for n in (size, count))
            work = GraphBuilder()
            x, y, g = work.input("x", odd.shape), work.input("y", whole.shape), work.input("g", back.shape)
            top, tap = work.emit("pool_max", (x,), **fields, counts=(count,))
            [sums] = work.emit("pool_sum", (y,), **fields, counts=(count,))
            [chosen] = work.emit("pool_max_grad", (g, tap), **fields, counts=(count,), sizes=(size,))
            [spread] = work.emit("pool_spread", (g,), **fields, counts=(count,), sizes=(size,))
            graph = work.finish([top, tap, sums, chosen, spread])
            given = [odd, whole, back]
            found = device.compile(graph, device.store()).run(given)
            for name, a, b in zip(
                ("top", "tap", "sums", "chosen", "spread"), found, interpret(graph, given, {}, np.float32), strict=True
            ):
                assert np.array_equal(bits(a), bits(b)), f"{name} of {size} by {fields}"
