"""A layer of one's own says its parameters and what it writes into a graph: all devices run and train it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.layers.graphed import graphed
from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.builders.sequential import chain
from volumetric.graph import GraphBuilder
from volumetric.graph.state_spec import StateSpec
from volumetric.layers import LAYERS, Dense, LayerSpec
from volumetric.layers.emit_scope import Scope, start_state
from volumetric.layers.layer_spec import ParamSpec, layer
from volumetric.network import initialise
from volumetric.run import lower
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
    y, saved = graphed(spec).forward({"a": a}, x)
    np.testing.assert_allclose(y, x + np.sin(a * x) ** 2 / a, rtol=1e-12)
    found = graphed(spec).vjp({"a": a}, saved, np.ones_like(y))
    assert found.inputs[0] is not None
    np.testing.assert_allclose(found.inputs[0], 1 + np.sin(2 * a * x), rtol=1e-12)
    slope = (x * np.sin(2 * a * x) / a - np.sin(a * x) ** 2 / a**2).sum(0)
    np.testing.assert_allclose(found.params["a"], slope, rtol=1e-10)
    none, saved = graphed(spec).forward({"a": a}, x[:0])
    assert none.shape == (0, 2)
    assert not graphed(spec).vjp({"a": a}, saved, none).params["a"].any()


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


@pytest.fixture(scope="module")
def leaky():
    """``h ← a h + x``, row by row, going on from call to call."""

    @layer("leaky")
    class Leaky(LayerSpec):
        contextual: ClassVar[bool] = True

        features: int

        def params(self) -> tuple[ParamSpec, ...]:
            return (ParamSpec(name="a", shape=(1, self.features), init="normal"),)

        def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
            return (StateSpec(name="h", shape=(self.features,), kind="fixed"),)

        def emit(self, scope: Scope, x: int) -> int:
            work, a = scope.work, scope.params(self)["a"]

            def body(inner: GraphBuilder, xs: list[int], constants: list[int], states: list[int]):
                h = inner.add(inner.binary("mul", states[0], constants[0]), xs[0])
                return [h], [h]

            rows = work.permute(scope.as_sequences(x), (1, 0, 2))
            [y], [last] = work.scan(body, [rows], [a], [start_state(scope, x, "h", (self.features,))])
            if scope.keeps_state(x):
                scope.keep_state("h", last)
            return work.reshape(work.permute(y, (1, 0, 2)), work.shape(x))

    yield Leaky
    del LAYERS["leaky"]


@pytest.mark.parametrize("name", DEVICES)
def test_one_with_a_state_goes_on_from_call_to_call(leaky, name: str):
    network = chain([leaky(features=2)], (2,))
    params = initialise(network)
    a, h, want = params["0.0.0.0/a"].values(), np.zeros(2, np.float32), []
    for row in X[:9]:
        h = a[0] * h + row
        want.append(h)
    executable = device(name).compile(lower(network), params)
    state = executable.new_state()
    found = [executable.forward(state, X[first:stop], last_only=False) for first, stop in ((0, 4), (4, 5), (5, 9))]
    np.testing.assert_allclose(np.concatenate(found), want, rtol=0, atol=1e-6)


def test_one_that_writes_no_graph_is_refused():
    class Silent(LayerSpec):
        kind = "silent"

    with pytest.raises(UnsupportedError, match="silent at silent does not define emit"):
        graphed(Silent()).forward({}, X)


def test_an_output_of_another_shape_than_promised_is_refused():
    @layer("halved")
    class Halved(LayerSpec):
        """Keeps the first two features, and does not say so."""

        def emit(self, scope, x):
            return x[:, :2]

    try:
        network = chain([Halved(), Dense(4, 1)], (4,))
        with pytest.raises(
            ShapeError, match=r"halved at 0.0.0.0: emit returned rows of shape \[2\].* says \[4\]"
        ) as caught:
            train(network, np.ones((3, 4), np.float32), np.ones((3, 1), np.float32), device="reference")
        assert "return (*shape[:-1], 2)" in (caught.value.hint or "")
    finally:
        del LAYERS["halved"]
