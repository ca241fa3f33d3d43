"""Formulas that packages register run and train on every device, beside kernels that know those of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, device
from volumetric.base.errors import SpecError
from volumetric.builders import chain
from volumetric.formula import losses, optimisers, unary_functions
from volumetric.formula.elementary import sign, softplus, sqrt, tanh
from volumetric.formula.expression import variables
from volumetric.formula.losses import LossTerm, T, Y
from volumetric.formula.optimisers import RATE, Attributes, G, Moved, OptimiserFormula, W
from volumetric.formula.unary_functions import UnaryFormula, X, slope_by_name, slopes_of
from volumetric.graph.numeric.numpy_formulas import function_of
from volumetric.layers import MLP, Dense, SwiGLU
from volumetric.network import initialise
from volumetric.run import lower
from volumetric.train import LOSSES, OPTIMISERS, ArrayData, TrainConfig, train

_WIDTH, _BETA, _REST, _DECAY, _MEAN = variables("width beta rest_beta weight_decay mean")


def signed(at: Attributes) -> Moved:
    """The sign of a mean of gradients, or of the gradient."""
    mean = _BETA * _MEAN + _REST * G
    return W * (1 - RATE * _DECAY) - RATE * sign(mean if at["smooth"] else G), {"mean": mean}


@pytest.fixture(autouse=True, scope="module")
def formulas() -> Iterator[None]:
    """Two activations, a loss and an optimiser, which are gone again behind this file."""
    unary_functions.ACTIVATIONS["mish"] = UnaryFormula(X * tanh(softplus(X)))
    unary_functions.ACTIVATIONS["soft_tanh"] = UnaryFormula(tanh(0.5 * X))  # whose derivative follows from its result
    losses.TERMS["charbonnier"] = LossTerm(
        sqrt((Y - T) * (Y - T) + _WIDTH * _WIDTH), "Smooth l1.", fields={"width": 0.1}
    )
    fields = {"weight_decay": 0.0, "beta": 0.9, "smooth": True}
    optimisers.OPTIMISERS["signed"] = OptimiserFormula(signed, fields, ("smooth",))
    yield
    del unary_functions.ACTIVATIONS["mish"], unary_functions.ACTIVATIONS["soft_tanh"]
    del losses.TERMS["charbonnier"], optimisers.OPTIMISERS["signed"]
    LOSSES.pop("charbonnier", None)
    OPTIMISERS.pop("signed", None)


@pytest.mark.parametrize("name", ["mish", "soft_tanh"])
def test_slopes_are_derived(name: str) -> None:
    x, step = np.linspace(-3, 3, 61), 1e-6
    value = function_of("x", unary_functions.FUNCTIONS[name].value)
    want = (value(x + step)[0] - value(x - step)[0]) / (2 * step)
    np.testing.assert_allclose(function_of("x", slope_by_name(name))(x)[0], want, rtol=1e-6, atol=1e-8)
    slopes = slopes_of(name)
    assert slopes is not None
    assert slopes.from_result == ("from_soft_tanh" if name == "soft_tanh" else None)
    if slopes.from_result:
        found = function_of("x", slope_by_name(slopes.from_result))(value(x)[0])[0]
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", DEVICES)
def test_layers_run_and_train_with_them(name: str) -> None:
    layers = [
        Dense(in_features=3, out_features=4, activation="mish"),
        SwiGLU(in_features=4, hidden_features=5, activation="mish", limit=0.5),
        MLP(in_features=4, hidden_features=5, activation="soft_tanh"),
    ]
    network = chain(layers, (3,))
    params = initialise(network, 1)
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    data = ArrayData(inputs=x, targets=np.tile(x[:, :1], 4), batch_size=6)

    def found(of: str) -> tuple[Any, list[float]]:
        executable = device(of).compile(lower(network), params)
        optimiser = {"kind": "signed", "lr": 0.01, "smooth": name != "gpu"}  # both forms, on one device each
        config = TrainConfig(epochs=3, loss={"kind": "charbonnier", "width": 0.3}, optimiser=optimiser)
        history = train(network, params, data, config, device=device(of)).history
        return executable.forward(executable.new_state(), x, last_only=False), [event.loss for event in history]

    values, history = found(name)
    wanted, other = found("reference")
    np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(history, other, rtol=1e-5)
    assert history[2] < history[0]


def test_kernels_have_room_for_so_many_fields() -> None:
    with pytest.raises(SpecError, match="at most 2 fields"):
        LossTerm(Y - T, "Too much.", fields={"a": 1.0, "b": 1.0, "c": 1.0})
    many = variables(" ".join(f"slot{i}" for i in range(4)))
    optimisers.OPTIMISERS["many"] = OptimiserFormula(lambda at: (W, {each.text: each for each in many}), {})
    try:
        with pytest.raises(SpecError, match="at most 3 slots"):
            optimisers.step_of("many")
    finally:
        del optimisers.OPTIMISERS["many"]
