"""Plain arithmetic on tensors of a graph means what it means for arrays, and has the gradients of that."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.layers.test_vjp import differences
from volumetric.base._typing import ROWS
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph import GraphBuilder, differentiate, interpret
from volumetric.graph.traced_tensor import TracedTensor

draw = np.random.default_rng(0)
X, W = draw.standard_normal((4, 3, 2)) + 0.1, draw.standard_normal((5, 2))
V = np.abs(draw.standard_normal(2)) + 0.5

COMPUTED = {
    "operators": lambda x, w, v: (x + 1) * (2 - x) / (3 + abs(x)) - x * x / 2 + (-x) - 1 / (x**2 + 1),
    "powers": lambda x, w, v: (x**2 + 1) ** 0.5 + (x**2 + 1) ** -1.5 + x**3 + 2.0**x + (abs(x) + 1) ** v,
    "parameters": lambda x, w, v: x * v + v - np.sin(v * x) ** 2 / v,
    "product": lambda x, w, v: x @ w.T,
    "product of a constant": lambda x, w, v: x @ np.arange(6.0).reshape(2, 3),
    "products of each sample": lambda x, w, v: x @ x.reshape(-1, 2, 3),
    "where": lambda x, w, v: np.where(x > 0, x, np.exp(x) - 1) + np.where((x > -1) & (x < 1), x, 0.0 * x),
    "choice by numbers": lambda x, w, v: np.where(np.floor(x), x, 2 * x),
    "comparisons": lambda x, w, v: x * (x >= 0.1) + x * (x <= 0.1) + x * (x != 5) + x * ~(x < 0),
    "means": lambda x, w, v: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3),
    "reductions": lambda x, w, v: x.sum(1) + x.max(axis=1) * np.min(x, axis=1) + np.mean(x, axis=(1,)),
    "of parameters": lambda x, w, v: x * v.sum() + w.mean(0),
    "functions": lambda x, w, v: np.tanh(x) + np.log1p(abs(x)) + np.logaddexp(x, v) + np.clip(x, -1, 1) + np.expm1(x),
    "extremes": lambda x, w, v: np.maximum(x, v) - np.minimum(x, 0.2) + np.square(x) + np.reciprocal(x * x + 1),
    "indices": lambda x, w, v: x[:, 0] * x[:, -1] + x[..., 1:, :][:, 0] + x[:, ::-1][:, 1],
    "new axes": lambda x, w, v: x[:, None, :, :1] * x[:, :, None, 1:],
    "shapes": lambda x, w, v: np.transpose(x, (0, 2, 1)).reshape(-1, 6) + x.reshape(x.shape[0], 6),
    "side by side": lambda x, w, v: np.concatenate([x, x[:, :1] * 2], axis=1),
}


def build(function: Any, *arrays: np.ndarray) -> tuple[GraphBuilder, list[int], Any]:
    """A graph with the first array as an input, and the others as parameters."""
    work = GraphBuilder()
    x = work.input("x", arrays[0].shape)
    others = [work.stored_tensor(f"p{i}", each.shape) for i, each in enumerate(arrays[1:])]
    with work.tracing("the layer test"):
        y = function(work.traced(x), *(work.traced(each, sampled=False) for each in others))
    return work, [x, *others], y


@pytest.mark.parametrize("name", COMPUTED)
def test_values_and_gradients_are_those_of_numpy(name: str) -> None:
    function = COMPUTED[name]
    work, inputs, y = build(function, X, W, V)
    want = function(X, W, V)
    seed = np.random.default_rng(1).standard_normal(want.shape)
    slopes = differentiate(work, {int(y.__index__()): work.input("seed", seed.shape)}, inputs)
    reached = [i for i in inputs if i in slopes]
    buffers = {"p0": W, "p1": V}
    got, *gradients = interpret(work.finish([y, *(slopes[i] for i in reached)]), [X, seed], buffers, np.float64)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    assert inputs[0] in reached
    for i, gradient in zip(reached, gradients, strict=True):
        at = (X, W, V)[inputs.index(i)].copy()
        arrays = [at if n == inputs.index(i) else each for n, each in enumerate((X, W, V))]
        np.testing.assert_allclose(
            gradient, differences(lambda arrays=arrays: float((function(*arrays) * seed).sum()), at), atol=1e-5
        )


def test_an_open_number_of_rows_stays_open() -> None:
    work = GraphBuilder()
    with work.tracing("the layer test"):
        x: Any = work.input("x", (ROWS, 6))
        assert x.reshape(-1, 2, 3).shape == (ROWS, 2, 3)
        assert x.reshape(x.shape[0], 3, 2).transpose(0, 2, 1).shape == (ROWS, 2, 3)
        assert (x.reshape(-1, 2)).shape == (3 * ROWS, 2)
        assert x[:, 2:].shape == (ROWS, 4)


def test_what_a_builder_returns_is_no_number_while_it_traces() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    assert isinstance(x, int)
    with work.tracing("the layer test"):
        y: Any = work.unary(x, "tanh")
        assert isinstance(y * 2 + work.add(x, y), TracedTensor)
    assert type(work.unary(x, "tanh")) is int


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x, w, v: max(0, x), SpecError, "has no value while the graph of the layer test is built"),
        (lambda x, w, v: float(x), SpecError, "numpy.exp"),
        (lambda x, w, v: list(x), SpecError, "not a sequence"),
        (lambda x, w, v: np.sort(x), SpecError, "numpy.sort cannot be part of the layer test"),
        (lambda x, w, v: x.sum(), ShapeError, "would mix the samples"),
        (lambda x, w, v: x[0], ShapeError, "counts samples"),
        (lambda x, w, v: x[:, 0] - x, ShapeError, "one lacks an axis"),
        (lambda x, w, v: x[:, 9], ShapeError, "out of bounds"),
        (lambda x, w, v: x[:, ::2], ShapeError, "step 1"),
        (lambda x, w, v: x[:, x > 0], ShapeError, "an index is a whole number"),
        (lambda x, w, v: x @ w, ShapeError, "x @ weight.T"),
        (lambda x, w, v: x + "a", ShapeError, "cannot be combined"),
        (lambda x, w, v: np.concatenate([x, x]), ShapeError, "join samples"),
    ],
)
def test_what_has_no_meaning_is_refused(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        build(function, X, W, V)
    assert re.search(message, f"{caught.value} {getattr(caught.value, 'hint', '')}")
