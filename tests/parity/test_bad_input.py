"""What is odd gives a clear error or a defined result, the same one on every device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import DEVICES, device, graphs
from tests.examples import EXAMPLES
from tests.parity.run import data, on_device
from tests.train.problems import chain
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numeric.activations import ACTIVATIONS, Activation
from volumetric.layers import (
    Dense,
    LayerNorm,
    LayerSpec,
    MaskedSoftmax,
    MultiHeadAttention,
    Reshape,
    RMSNorm,
    Softcap,
    Softmax,
    SwiGLU,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Link
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run import RunOptions, lower
from volumetric.train import Batch, LearnerOptions
from volumetric.train.device_learner import DeviceLearner


def forward(name: str, network: Network, params: Params, x: np.ndarray) -> np.ndarray:
    executable = device(name).compile(lower(network), params, RunOptions())
    return executable.forward(executable.new_state(), x, last_only=False)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_no_rows_give_no_rows_and_zero_gradients(kind: str, name: str) -> None:
    spec, shape = EXAMPLES[kind].sized(1, 3, 4)
    example = spec, (0, *shape[1:])
    of = data(example, seed=1)
    found = on_device(name, example, of)
    assert found["forward"].shape == of.gy.shape
    assert found["forward"].size == 0
    for param in spec.params():
        np.testing.assert_array_equal(found[f"vjp {param.name}"], np.zeros(param.shape))


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_in_a_weight_stays_in_what_depends_on_it(activation: Activation, name: str) -> None:
    """Through the fused plan, and through graphs (the reshape): column 1 is NaN, the others are numbers."""
    for layers in ((), (Reshape(shape=(2, 2)), Reshape(shape=(-1,)))):
        network = chain(Dense(in_features=3, out_features=4, activation=activation), *layers, inputs=3)
        stores = dict(initialise(network, seed=1))
        weight = stores["0.0.0.0/weight"].values().copy()
        weight[1, 2] = np.nan
        params = Params(stores | {"0.0.0.0/weight": WeightStore.from_array(weight)})
        y = forward(name, network, params, np.ones((5, 3), np.float32))
        np.testing.assert_array_equal(np.isnan(y), np.broadcast_to([False, True, False, False], (5, 4)))


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize(
    "layer",
    [
        Softmax(),
        Softcap(cap=2.0),
        RMSNorm(num_features=6),
        LayerNorm(num_features=6),
        SwiGLU(in_features=6, hidden_features=5),
    ],
    ids=lambda spec: spec.kind,
)
def test_nan_in_a_row_stays_in_that_row(layer: LayerSpec, name: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    x[2, 3] = np.nan
    for layers in ((layer,), (layer, Reshape(shape=(2, 3)), Reshape(shape=(-1,)))):
        network = chain(*layers, inputs=6)
        y = forward(name, network, initialise(network, seed=1), x)
        where = np.broadcast_to(np.arange(4)[:, None] == 2, (4, 6))
        if isinstance(layer, Softcap):
            where = np.isnan(x)
        np.testing.assert_array_equal(np.isnan(y), where)


@pytest.mark.parametrize("name", DEVICES)
def test_training_on_nan_in_a_weight_names_it_and_changes_nothing(name: str) -> None:
    network = chain(Dense(in_features=3, out_features=4), inputs=3)
    weight = np.ones((4, 3), np.float32)
    weight[0, 0] = np.nan
    params = Params(dict(initialise(network)) | {"0.0.0.0/weight": WeightStore.from_array(weight)})
    learner = DeviceLearner(network, params, LearnerOptions(), graphs(name))
    report = learner.step([Batch(np.ones((2, 3), np.float32), np.ones((2, 4), np.float32))], rate=0.1)
    assert report.fault == "parameter 0.0.0.0/weight"
    assert np.array_equal(learner.state.masters["0.0.0.0/weight"], weight, equal_nan=True)


@pytest.mark.parametrize("name", DEVICES)
def test_masks_that_remove_everything_give_zeros(name: str) -> None:
    nothing = chain(Dense(in_features=2, out_features=3), MaskedSoftmax(mask=(False, False, False)), inputs=2)
    y = forward(name, nothing, initialise(nothing), np.ones((4, 2), np.float32))
    np.testing.assert_array_equal(y, np.zeros((4, 3)))
    hidden = chain(Softmax(), inputs=3)
    y = forward(name, hidden, initialise(hidden), np.full((2, 3), -np.inf, np.float32))
    np.testing.assert_array_equal(y, np.zeros((2, 3)))
    learner = DeviceLearner(nothing, initialise(nothing), LearnerOptions(), graphs(name))
    x, t = np.ones((2, 2), np.float32), np.ones((2, 3), np.float32)
    assert learner.evaluate(Batch(x, t, np.zeros(2))).count == 0
    with pytest.raises(SpecError, match="the loss has no counted terms"):
        learner.step([Batch(x, t, np.zeros(2))], rate=0.1)


@pytest.mark.parametrize("name", DEVICES)
def test_inputs_of_another_shape_or_type_are_refused(name: str) -> None:
    for last in (
        Dense(in_features=3, out_features=3),
        MultiHeadAttention(embed_dim=3, num_heads=1),
        Reshape(shape=(3, 1)),
    ):
        layers: tuple[LayerSpec, ...] = (Dense(in_features=3, out_features=3), last)
        network = chain(*layers, inputs=3)
        executable = device(name).compile(lower(network), initialise(network), RunOptions())
        inexact = np.full((2, 3), 2**24 + 1)
        others = (np.zeros((2, 3), kind) for kind in ("complex64", "U1", "S1", "O", "M8[s]"))
        for x in (np.zeros((2, 4), np.float32), np.zeros(3, np.float32), inexact, *others):
            with pytest.raises(ShapeError, match=r"the network reads float32"):
                executable.forward(executable.new_state(), x)
        whole = executable.forward(executable.new_state(), np.ones((2, 3), np.int32))
        np.testing.assert_array_equal(whole, executable.forward(executable.new_state(), np.ones((2, 3), np.float32)))
        with pytest.raises(ShapeError, match="at least one row"):
            executable.forward(executable.new_state(), np.zeros((0, 3), np.float32))


def test_links_in_a_circle_are_refused() -> None:
    dense = Dense(in_features=2, out_features=2)
    layers = {Coord(z): dense for z in range(3)}
    base = chain(dense, dense, dense, inputs=2)
    shared = [Link(kind="shared", source=Coord(z), target=Coord((z + 1) % 3)) for z in range(3)]
    with pytest.raises(SpecError, match="form a loop"):
        Network(grid=base.grid, layers=layers, links=tuple(shared), input_shape=(2,), input_dtype="float32")
    for source, target in ((2, 0), (1, 1)):
        link = Link(kind="activation", source=Coord(source), target=Coord(target))
        with pytest.raises(SpecError, match=f"{source}.0.0.0"):
            lower(base.with_link(link))
