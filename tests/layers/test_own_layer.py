"""A layer of one's own says its parameters and what it writes into a graph: all devices run and train it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import DEVICES, device
from volumetric.builders.chain import chain
from volumetric.errors import UnsupportedError
from volumetric.graph.state import Memory, StateSpec
from volumetric.layers import LAYERS, Dense, LayerSpec
from volumetric.layers.base import ParamSpec, layer
from volumetric.layers.scope import Scope
from volumetric.network import initialise
from volumetric.runtime import lower
from volumetric.train import Adam, TrainConfig, train

RNG = np.random.default_rng(7)
X = RNG.standard_normal((64, 2)).astype(np.float32)
Y = np.sin(3 * X[:, :1])


@pytest.fixture(scope="module")
def snake():
    """``x + sin²(a x) / a`` (Ziyin et al. 2020, arXiv 2006.08195)."""

    @layer("snake")
    class Snake(LayerSpec):
        features: int

        def params(self) -> tuple[ParamSpec, ...]:
            return (ParamSpec(name="a", shape=(self.features,), init="ones"),)

        def emit(self, scope: Scope, x: int) -> int:
            work, a = scope.work, scope.params(self)["a"]
            square = work.unary(work.unary(work.binary("mul", x, a), "sin"), "square")
            return work.add(x, work.binary("div", square, a))

    yield Snake
    del LAYERS["snake"]


def test_it_computes_its_formula_and_its_gradient(snake):
    spec, a = snake(features=2), np.array([0.5, 2.0])
    x = X.astype(np.float64)
    y, saved = spec.forward({"a": a}, x)
    np.testing.assert_allclose(y, x + np.sin(a * x) ** 2 / a, rtol=1e-12)
    found = spec.vjp({"a": a}, saved, np.ones_like(y))
    np.testing.assert_allclose(found.inputs[0], 1 + np.sin(2 * a * x), rtol=1e-12)
    slope = (x * np.sin(2 * a * x) / a - np.sin(a * x) ** 2 / a**2).sum(0)
    np.testing.assert_allclose(found.params["a"], slope, rtol=1e-10)
    none, saved = spec.forward({"a": a}, x[:0])
    assert none.shape == (0, 2)
    assert not spec.vjp({"a": a}, saved, none).params["a"].any()


def test_devices_train_it_alike(snake):
    network = chain(
        [Dense(in_features=2, out_features=8), snake(features=8), Dense(in_features=8, out_features=1)], (2,)
    )
    config = TrainConfig(epochs=3, optimiser=Adam(lr=1e-2))
    made = {}
    for name in DEVICES:
        params = train(network, initialise(network), (X, Y), config, device=device(name)).params
        executable = device(name).compile(lower(network), params)
        made[name] = executable.forward(executable.new_state(), X, last_only=False)
    for name in DEVICES[1:]:
        np.testing.assert_allclose(made[name], made["reference"], rtol=0, atol=1e-5)


def test_what_keeps_states_needs_a_forward_that_reads_them(snake):
    class Counting(snake):
        kind = "counting"

        def states(self, *inputs):
            return (StateSpec(name="n", shape=(1,), kind="fixed"),)

    with pytest.raises(UnsupportedError, match="counting depends on the rows before a call"):
        Counting(features=2).forward({"a": np.ones(2)}, X, memory=Memory())


def test_one_that_says_neither_is_refused():
    class Silent(LayerSpec):
        kind = "silent"

    with pytest.raises(UnsupportedError, match="silent has neither a forward nor an emit"):
        Silent().forward({}, X)
