"""What kernels make of numbers far out, and of the ends of rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import FAST, graphs
from volumetric.graph import GraphBuilder, NumpyGraphs

FAR = np.array([0.5, 50, 87, 88, 88.7, 104, 1e4, 3e38, 1e-30], np.float32)
FINITE = np.concatenate([[0.0], FAR, -FAR]).astype(np.float32)
WHOLE = ("exp", "tanh", "sigmoid", "softplus")
"""Functions that have an answer for infinities, too."""
FUNCTIONS = (*WHOLE, "silu", "gelu", "gelu_tanh", "quick_gelu")
TAILS = (1, 2, 15, 16, 17, 31, 33)
"""Lengths around what a processor computes at once."""
LEAST = {"cpu": 2e-38, "gpu": 128 * 2.0**-126}
"""Below this a function may be 0. WGSL says how exact a division is where the divisor is at most 2¹²⁶; beyond, as in
silu below -87, an H100 gives 0."""


def computed(name: str, x: np.ndarray, functions: tuple[str, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Functions as a device computes them, and in float64."""
    work = GraphBuilder()
    i = work.input("x", x.shape)
    graph = work.finish([work.unary(i, function) for function in functions])
    found, want = (one.compile(graph, one.store()).run([x]) for one in (graphs(name), NumpyGraphs(np.float64)))
    with np.errstate(over="ignore"):
        return [(got, right.astype(np.float32)) for got, right in zip(found, want, strict=True)]


@pytest.mark.parametrize("name", FAST)
def test_functions_stay_what_they_are(name: str) -> None:
    for function, (got, want) in zip(FUNCTIONS, computed(name, FINITE, FUNCTIONS), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=LEAST[name], err_msg=function)
    odd = np.array([np.inf, -np.inf, np.nan], np.float32)
    for function, (got, _) in zip(WHOLE, computed(name, odd, WHOLE), strict=True):
        want = {"exp": (np.inf, 0), "tanh": (1, -1), "sigmoid": (1, 0), "softplus": (np.inf, 0)}[function]
        np.testing.assert_array_equal(got, [*want, np.nan], err_msg=function)


@pytest.mark.parametrize("name", FAST)
def test_softmax_stays_a_distribution(name: str) -> None:
    rows = np.zeros((6, 17), np.float32)
    rows[0], rows[1, 3], rows[2, 5], rows[3] = 1e4, 3e38, -3e38, -88
    rows[4, 1:] = -np.inf
    rows[5] = np.linspace(-50, 50, 17)
    work = GraphBuilder()
    graph = work.finish([work.softmax(work.input("x", rows.shape))])
    [got], [want] = (one.compile(graph, one.store()).run([rows]) for one in (graphs(name), NumpyGraphs(np.float64)))
    np.testing.assert_allclose(got, want.astype(np.float32), rtol=4e-6, atol=1e-37)
    np.testing.assert_allclose(got.sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("name", FAST)
def test_nothing_beyond_the_end_is_read_or_written(name: str) -> None:
    """Parts of one tensor, whose neighbours are NaN, come out as they do alone."""
    rng, work = np.random.default_rng(2), GraphBuilder()
    parts = [rng.standard_normal(n).astype(np.float32) for n in TAILS]
    hole = np.full(3, np.nan, np.float32)
    whole = np.concatenate([piece for part in parts for piece in (part, hole)])
    x = work.input("x", whole.shape)
    outputs, at = [], 0
    for part in parts:
        piece = work.part(x, 0, at, at + len(part))
        rows = work.reshape(piece, (1, len(part)))
        outputs += [work.unary(piece, "tanh"), work.softmax(rows), work.reduce(rows, "sum", (1,))]
        outputs.append(work.gemm(*(work.reshape(piece, (1, *s)) for s in ((1, len(part)), (len(part), 1)))))
        at += len(part) + len(hole)
    device = graphs(name)
    graph = work.finish(outputs)
    found = device.compile(graph, device.store()).run([whole])
    for part, (bounded, shares, total, square) in zip(parts, zip(*[iter(found)] * 4, strict=True), strict=True):
        wide = part.astype(np.float64)
        want = np.exp(wide - wide.max())
        np.testing.assert_allclose(bounded, np.tanh(wide), rtol=2e-6)
        np.testing.assert_allclose(shares[0], want / want.sum(), rtol=2e-6)
        np.testing.assert_allclose(total.item(), wide.sum(), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(square.item(), wide @ wide, rtol=2e-6)
