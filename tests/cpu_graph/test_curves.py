"""Functions of elements over the whole range of float32: errors in units of the last place, and odd numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.graph import GraphBuilder
from volumetric.graph.numeric.activations import erf

INF, NAN = math.inf, math.nan


def on_device(name: str, x: np.ndarray) -> np.ndarray:
    work = GraphBuilder()
    device = graphs()
    program = device.compile(work.finish([work.unary(work.input("x", x.shape), name)]), device.store())
    return program.run([x.astype(np.float32)])[0]


def spread(low: float, high: float) -> np.ndarray:
    """Numbers evenly spread, and numbers of all magnitudes, between two bounds."""
    random = np.random.default_rng(3)
    even = random.uniform(low, high, 60_000)
    tiny = random.choice([-1, 1], 60_000) * 2.0 ** random.uniform(-120, math.log2(max(high, -low)), 60_000)
    return np.concatenate([even, tiny[(tiny > low) & (tiny < high)]]).astype(np.float32)


def units(got: np.ndarray, want: np.ndarray) -> float:
    """Largest error, in units of the last place of the true value."""
    return float((np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)).max())


@pytest.mark.parametrize(
    ("name", "exact", "low", "high", "bound"),
    [
        ("exp", np.exp, -87.0, 88.5, 1.5),
        ("log", np.log, 1e-37, 1e30, 1.5),
        ("tanh", np.tanh, -12.0, 12.0, 2.0),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), -80.0, 30.0, 3.0),
        ("silu", lambda x: x / (1 + np.exp(-x)), -80.0, 80.0, 4.0),
    ],
)
def test_errors_are_a_few_units_of_the_last_place(
    name: str, exact: np.ufunc, low: float, high: float, bound: float
) -> None:
    x = spread(low, high)
    assert units(on_device(name, x), exact(x.astype(np.float64))) <= bound


def test_gelu_is_exact_to_rounding_of_its_largest_part() -> None:
    x = spread(-8.0, 8.0)
    wide = x.astype(np.float64)
    want = 0.5 * wide * (1 + erf(wide / math.sqrt(2)))
    assert np.abs(on_device("gelu", x) - want).max() < 8e-7


@pytest.mark.parametrize(
    ("name", "given", "want"),
    [
        ("exp", [INF, -INF, NAN, 0.0, 89.0, -104.5], [INF, 0.0, NAN, 1.0, INF, 0.0]),
        ("log", [INF, 0.0, -0.0, -1.0, NAN, 1.0], [INF, -INF, -INF, NAN, NAN, 0.0]),
        ("tanh", [INF, -INF, NAN], [1.0, -1.0, NAN]),
        ("sigmoid", [INF, -INF, NAN, 200.0, -200.0], [1.0, 0.0, NAN, 1.0, 0.0]),
        ("relu", [INF, -INF, NAN, -1.0], [INF, 0.0, NAN, 0.0]),
        ("sqrt", [INF, -1.0, NAN, 4.0], [INF, NAN, NAN, 2.0]),
        ("floor", [INF, -INF, NAN, -0.5, 8388607.5, -3e9], [INF, -INF, NAN, -1.0, 8388607.0, -3e9]),
        ("cos", [INF, -INF, NAN, 0.0], [NAN, NAN, NAN, 1.0]),
        ("sin", [INF, -INF, NAN, 0.0], [NAN, NAN, NAN, 0.0]),
        ("sign", [INF, -INF, NAN, -0.0, -3.0], [1.0, -1.0, NAN, 0.0, -1.0]),
    ],
)
def test_odd_numbers(name: str, given: list[float], want: list[float]) -> None:
    np.testing.assert_array_equal(on_device(name, np.array(given)), np.array(want, np.float32))


def test_exp_is_zero_where_it_would_be_subnormal() -> None:
    x = np.linspace(-103, -85, 50, dtype=np.float32)
    want = np.exp(x.astype(np.float64))
    want[want < np.finfo(np.float32).tiny] = 0
    np.testing.assert_allclose(on_device("exp", x), want, rtol=3e-7)
