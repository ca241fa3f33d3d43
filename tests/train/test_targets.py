"""Target propagation: what layers are told is what the formulas say, on every device, and it teaches them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.arrays import array
from tests.devices import DEVICES, FAST, device, graphs
from tests.train.problems import chain, perceptron, waves
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.graph.numeric.counter_noise import noise_key, stream_of
from volumetric.graph.operations.noise import dropout_mask
from volumetric.layers import (
    AvgPool2d,
    Clamp,
    Conv2d,
    Dense,
    Discrete,
    Dropout,
    Flatten,
    LayerNorm,
    MaxPool2d,
    Parallel,
    Residual,
    RMSNorm,
    Scale,
    Sequential,
    Softcap,
    Softmax,
)
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.run.graph.inverses import last_steps, plan_inverses
from volumetric.run.lower import lower
from volumetric.train import (
    SGD,
    Adam,
    Backprop,
    Batch,
    CrossEntropy,
    DivergedError,
    LearnerOptions,
    LowRank,
    Momentum,
    TargetEvent,
    TargetPropagation,
    TrainConfig,
    train,
)
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.settings import settings_from

OPEN: dict[str, Any] = {"gate": 0.0, "clamp": 1e9}


def tanh(inputs: int, outputs: int) -> Dense:
    return Dense(in_features=inputs, out_features=outputs, activation="tanh")


DEEP = chain(tanh(4, 7), LayerNorm(num_features=7), tanh(7, 6), Dense(in_features=6, out_features=1), inputs=4)


def batch(network: Network, samples: int = 12, outputs: int = 1) -> Batch:
    rng = np.random.default_rng(5)
    shape = (samples, *network.input_shape)
    return Batch(rng.standard_normal(shape).astype(np.float32), rng.standard_normal((samples, outputs)).astype("f4"))


def learner(name: str, network: Network, mode: TargetPropagation, **options: Any) -> DeviceLearner:
    given = LearnerOptions(mode=mode, **{"optimiser": SGD(), **options})
    return DeviceLearner(network, initialise(network, seed=2), given, graphs(name))


def after(trained: DeviceLearner, data: Batch, steps: int = 1, rate: float = 0.1) -> dict[str, Array]:
    for _ in range(steps):
        report = trained.step([data], rate=rate)
        assert report.fault is None
    return dict(trained.state.masters)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_targets_along_the_gradient_teach_what_backprop_does(name: str) -> None:
    layers = (tanh(4, 6), Sequential(layers=(RMSNorm(num_features=6), tanh(6, 6), Residual())), Dropout(p=0.3))
    network = chain(*layers, Dense(in_features=6, out_features=2), Softmax(), inputs=4)
    data = batch(network, outputs=2)
    start = {key: store.values() for key, store in initialise(network, seed=2).items()}
    plain = DeviceLearner(network, initialise(network, seed=2), LearnerOptions(optimiser=SGD()), graphs(name))
    expected = after(plain, data)
    told = learner(name, network, TargetPropagation(method="gradient", depth_scale=1.3, **OPEN))
    report = told.step([data], rate=0.1)
    budgets = {of.where: of.budget for of in report.layers}
    assert [of.where for of in report.layers] == ["0.0.0.0", "1.0.0.0/0", "1.0.0.0/1", "3.0.0.0"]
    for key, w in told.state.masters.items():
        pace = 0.5 + 0.5 * budgets[key.rpartition("/")[0]]
        moved, wanted = (w - start[key]) / pace, expected[key] - start[key]
        np.testing.assert_allclose(moved, wanted, rtol=0, atol=2e-6 * max(1, np.abs(wanted).max()), err_msg=key)


class ByHand:
    """Difference targets of tanh layers below a linear one, in float64."""

    def __init__(self, masters: dict[str, Array]) -> None:
        self.w = {key: w.astype(np.float64) for key, w in masters.items()}

    def layer(self, z: int, x: Array) -> Array:
        y = x @ self.w[f"{z}.0.0.0/weight"].T + self.w[f"{z}.0.0.0/bias"]
        return np.tanh(y) if z < 2 else y

    def back(self, z: int, y: Array) -> Array:
        return np.tanh(y @ self.w[f"inverse/{z}.0.0.0/weight"].T + self.w[f"inverse/{z}.0.0.0/bias"])

    def update(self, data: Batch, mode: TargetPropagation, seed: int, rate: float) -> dict[str, Array]:
        rows, h = len(data.features), [data.features.astype(np.float64)]
        for z in range(3):
            h.append(self.layer(z, h[-1]))
        slope = 2 * (h[3] - array(data.targets))  # of each row's loss, the mean over rows of which is taken
        s, new = mode.gradient_scale, {key: w.copy() for key, w in self.w.items()}
        shift = {
            i: np.clip(x, -mode.clamp, mode.clamp)
            for i, x in ((3, -s * slope), (2, -s * slope @ new["2.0.0.0/weight"]))
        }
        crossed = mode.growth * (self.back(1, h[2] + shift[2]) - self.back(1, h[2]))
        shift[1] = np.clip(crossed, -mode.clamp, mode.clamp)
        kappa = {3: s, 2: s, 1: s * mode.growth}
        for i in (1, 2, 3):
            target = h[i] + shift[i]
            budget = (np.sum(h[i] * target) / (np.linalg.norm(h[i]) * np.linalg.norm(target)) + 1) / 2
            pre = -shift[i] / (rows * kappa[i]) * (1 if i == 3 else 1 - h[i] ** 2)
            for part, g in (("weight", pre.T @ h[i - 1]), ("bias", pre.sum(0))):
                new[f"{i - 1}.0.0.0/{part}"] -= rate * (0.5 + 0.5 * budget) * g * (budget >= mode.gate)
        draws = dropout_mask(h[1].shape, 0.5, noise_key(seed, 0, 0), stream_of("1.0.0.0/inverse"))
        near = h[1] + mode.noise * (2.0 * draws - 1)
        y = self.layer(1, near)
        found = self.back(1, y)
        pre = (found - near) / rows * (1 - found**2)
        own = rate if mode.inverse_rate is None else mode.inverse_rate
        new["inverse/1.0.0.0/weight"] -= own * pre.T @ y
        new["inverse/1.0.0.0/bias"] -= own * pre.sum(0)
        return new


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_difference_targets_are_those_of_the_formulas(name: str) -> None:
    network = chain(tanh(4, 7), tanh(7, 6), Dense(in_features=6, out_features=1), inputs=4)
    mode = TargetPropagation(depth_scale=1.2, gradient_scale=0.5, clamp=0.4, gate=0.1)
    told, data = learner(name, network, mode, seed=9), batch(network)
    expected = ByHand(dict(told.state.masters)).update(data, mode, 9, 0.1)
    found = after(told, data)
    assert found.keys() == expected.keys()
    for key, w in found.items():
        np.testing.assert_allclose(w, expected[key], rtol=0, atol=3e-7, err_msg=key)


def test_a_step_by_exact_inverses_lowers_the_loss() -> None:
    network = chain(*(Dense(in_features=5, out_features=5) for _ in range(3)), inputs=5)
    told, data = (
        learner("cpu", network, TargetPropagation(inverse="pinv", pinv_damping=1e-6)),
        batch(network, outputs=5),
    )
    losses = [told.step([data], rate=0.05).tally.total for _ in range(6)]
    assert losses == sorted(losses, reverse=True)
    assert not any(key.startswith("inverse/") for key in told.state.masters)
    assert set(told.state.buffers) == {"inverse/1.0.0.0/pinv"}


@pytest.mark.parametrize("steps", [1, 4])
def test_inverses_learn_to_go_back(steps: int) -> None:
    told, data = learner("cpu", DEEP, TargetPropagation(inverse_rate=0.3, inverse_steps=steps)), batch(DEEP, 64)

    def error() -> float:
        """How far the inverse of the third layer is from its input."""
        w = {key: array.astype(np.float64) for key, array in told.state.masters.items()}
        x = np.random.default_rng(1).standard_normal((50, 7))  # rows as the norm makes them
        x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
        y = np.tanh(x @ w["2.0.0.0/weight"].T + w["2.0.0.0/bias"])
        return float(np.square(y @ w["inverse/2.0.0.0/weight"].T + w["inverse/2.0.0.0/bias"] - x).mean())

    before = error()
    after(told, data, 60 // steps, rate=1e-3)  # the rate of the optimiser: that of the inverses is 0.3
    assert error() < 0.7 * before


def test_layers_below_the_gate_stay() -> None:
    mode = TargetPropagation(gradient_scale=3.0, clamp=1e9, gate=0.0)
    start, data = dict(learner("cpu", DEEP, mode).state.masters), batch(DEEP)
    budgets = {of.where: of.budget for of in learner("cpu", DEEP, mode).step([data], rate=0.1).layers}
    assert all(0 <= budget <= 1 for budget in budgets.values())
    between = (min(budgets.values()) + max(budgets.values())) / 2
    shut = learner("cpu", DEEP, dataclasses.replace(mode, gate=between), optimiser=Momentum())
    after(shut, data)
    state = shut.state
    for key, w in state.masters.items():
        if not key.startswith("inverse/"):
            closed = budgets[key.rpartition("/")[0]] < between
            assert np.array_equal(w, start[key]) == closed, key
            assert (not state.slots["velocity"][key].any()) == closed, key


@pytest.mark.thorough
def test_every_setting_acts() -> None:
    data, plain = batch(DEEP), TargetPropagation()
    base = after(learner("cpu", DEEP, plain, optimiser=Momentum()), data, 3)
    changes: dict[str, Any] = {
        "method": "gradient", "inverse": "transpose", "top": "output", "gradient_scale": 0.2, "depth_scale": 1.5,
        "gate": 0.99, "clamp": 1e-3, "noise": 0.3, "noise_decay": 0.5, "inverse_steps": 2, "inverse_rate": 0.2,
    }  # fmt: skip
    for field, value in changes.items():
        found = after(learner("cpu", DEEP, dataclasses.replace(plain, **{field: value}), optimiser=Momentum()), data, 3)
        same = {key for key in base if key in found and np.array_equal(base[key], found[key])}
        assert same != base.keys(), field
    solved = dataclasses.replace(plain, inverse="pinv")
    base = after(learner("cpu", DEEP, solved), data, 3)
    for field, value in {"pinv_every": 1, "pinv_damping": 1.0}.items():
        found = after(learner("cpu", DEEP, dataclasses.replace(solved, **{field: value})), data, 3)
        assert any(not np.array_equal(base[key], found[key]) for key in base), field
    calmer = after(learner("cpu", DEEP, plain, optimiser=Momentum(momentum=0.5)), data, 3)
    assert not np.array_equal(calmer["0.0.0.0/weight"], after(learner("cpu", DEEP, plain), data, 3)["0.0.0.0/weight"])


IMAGES = Network(
    grid=Grid(6),
    layers={
        Coord(0): Conv2d(in_channels=1, out_channels=3, kernel_size=3, padding=1, activation="tanh"),
        Coord(1): MaxPool2d(kernel_size=2),
        Coord(2): Conv2d(in_channels=3, out_channels=4, kernel_size=2, stride=2, activation="tanh"),
        Coord(3): AvgPool2d(kernel_size=2),
        Coord(4): Flatten(),
        Coord(5): Dense(in_features=4, out_features=2),
    },
    input_shape=(1, 8, 8),
    input_dtype="float32",
)
BRANCHES = Network(
    grid=Grid(7),
    layers={
        Coord(0): tanh(4, 6),
        Coord(1): Parallel(branches=(tanh(6, 3), Sequential(layers=(Scale(factor=2.0), tanh(6, 3)))), combine="concat"),
        Coord(2): Clamp(min=-2.0, max=2.0),
        Coord(3): Sequential(layers=(tanh(6, 6), Residual(), RMSNorm(num_features=6))),
        Coord(4): Softcap(cap=3.0),
        Coord(5): tanh(6, 5),
        Coord(6): Dense(in_features=5, out_features=2),
    },
    links=(Link(kind="activation", source=Coord(0), target=Coord(3), combine="add"),),
    input_shape=(4,),
    input_dtype="float32",
)


@pytest.mark.thorough
@pytest.mark.parametrize("inverse", ["learned", "transpose", "pinv"])
@pytest.mark.parametrize("network", [IMAGES, BRANCHES], ids=["images", "branches"])
def test_targets_cross_layers_of_all_kinds_and_devices_agree(network: Network, inverse: Any) -> None:
    found = {}
    for name in FAST:
        mode = TargetPropagation(inverse=inverse, gate=0.0)
        told, data = learner(name, network, mode, optimiser=Adam()), batch(network, outputs=2)
        losses = [told.step([data], rate=0.01).tally.total for _ in range(8)]
        assert losses[-1] < losses[0]
        found[name] = dict(told.state.masters)
    start = {key: store.values() for key, store in initialise(network, seed=2).items()}
    assert all(not np.array_equal(found["cpu"][key], w) for key, w in start.items())
    for key, w in found["cpu"].items():
        np.testing.assert_allclose(found["gpu"][key], w, rtol=0, atol=2e-3, err_msg=key)


def test_a_convolution_goes_back_by_a_transposed_one() -> None:
    plan = lower(IMAGES)
    inverses = plan_inverses(plan, "learned", derived=[step.where for steps in last_steps(plan) for step in steps])
    assert {where: getattr(of.layer, "kind", None) for where, of in inverses.items()} == {"2.0.0.0": "conv_transpose2d"}


@pytest.mark.thorough
def test_nets_of_signs_learn_where_backprop_cannot() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (400, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    network = chain(tanh(2, 40), Discrete(), tanh(40, 40), Discrete(), Dense(in_features=40, out_features=2), inputs=2)
    right = {}
    for mode in (Backprop(), TargetPropagation(gradient_scale=0.5)):
        config = TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=3e-3), epochs=25, mode=mode, accuracy=True)
        right[mode.kind] = train(network, initialise(network), (x, y), config, device="cpu").history[-1].accuracy or 0.0
    assert right["target"] > 0.93
    assert right["backprop"] < 0.8


@pytest.mark.parametrize("inverse", ["learned", "pinv"])
def test_a_resumed_run_has_the_same_bits_and_events(inverse: Any, tmp_path: Path) -> None:
    network = perceptron(4, 6, 1)
    config = TrainConfig(optimiser=Adam(lr=0.01), epochs=3, mode=TargetPropagation(top="output", inverse=inverse))
    events: list[Any] = []
    held: dict[str, Any] = {"device": "cpu", "validation": 0.25}  # the best weights are in checkpoints, too
    whole = train(network, initialise(network), waves(), config, reporters=[events.append], **held)
    told = [event for event in events if isinstance(event, TargetEvent)]
    assert len(told) == whole.steps
    assert [of.kind for of in told[0].layers] == ["dense", "dense"]
    assert "0.0.0.0 budget" in str(told[0])
    short = dataclasses.replace(config, epochs=1)
    train(network, initialise(network), waves(), short, checkpoints=tmp_path, **held)
    rest = train(network, initialise(network), waves(), config, checkpoints=tmp_path, resume=True, **held)
    assert set(rest.params) == set(rest.best) == set(network.param_specs())
    for key, store in whole.params.items():
        np.testing.assert_array_equal(rest.params[key].values(), store.values())


def test_the_reference_device_learns_by_targets_too() -> None:
    network = perceptron(4, 6, 1)
    config = TrainConfig(optimiser=Adam(lr=0.01), mode=TargetPropagation())
    found = [train(network, initialise(network), waves(), config, device=device(name)) for name in ("reference", "cpu")]
    for key, store in found[0].params.items():
        np.testing.assert_allclose(found[1].params[key].values(), store.values(), rtol=0, atol=1e-5)


def test_what_is_not_finite_changes_nothing_and_is_named() -> None:
    network = perceptron(4, 6, 1)
    inputs = np.ones((4, 4), np.float32)
    inputs[1, 2] = np.nan
    told = learner("cpu", network, TargetPropagation())
    start = told.state.masters
    report = told.step([Batch(inputs, np.zeros((4, 1), np.float32))], rate=0.1)
    assert report.fault is not None
    assert "input" in report.fault
    huge = learner("cpu", network, TargetPropagation(inverse="learned", top="output"))
    assert huge.step([batch(network)], rate=1e38).fault is not None
    for key, w in told.state.masters.items():
        np.testing.assert_array_equal(w, start[key])
    config = TrainConfig(mode=TargetPropagation())
    with pytest.raises(DivergedError):
        train(network, initialise(network), (inputs, np.zeros((4, 1), np.float32)), config, device="cpu")


def test_what_targets_cannot_do_is_refused_by_name() -> None:
    signs = chain(tanh(2, 3), Discrete(), Dense(in_features=3, out_features=1), inputs=2)
    with pytest.raises(UnsupportedError, match=r"discrete layer at 1\.0\.0\.0"):
        learner("cpu", signs, TargetPropagation(method="gradient"))
    loop = Network(
        grid=Grid(2),
        layers={Coord(0): tanh(2, 2), Coord(1): tanh(2, 2)},
        links=(Link(kind="activation", source=Coord(0), target=Coord(1), delay=1),),
        input_shape=(2,),
        input_dtype="float32",
    )
    with pytest.raises(UnsupportedError, match="delay"):
        learner("cpu", loop, TargetPropagation())
    wide = chain(tanh(2, 5000), Softmax(), Flatten(), inputs=2)
    assert learner("cpu", wide, TargetPropagation())  # rows of features have no bound
    config: dict[str, Any] = {"mode": TargetPropagation()}
    with pytest.raises(SpecError, match="accumulate"):
        TrainConfig(accumulate=2, **config)
    with pytest.raises(SpecError, match="overlays"):
        _ = TrainConfig(overlay=LowRank(), **config).learner
    for fields in ({"gate": -1.0}, {"method": "sum"}, {"clamp": 0.0}, {"inverse_steps": 0}, {"depth_scale": np.nan}):
        with pytest.raises(SpecError, match=next(iter(fields))):
            TargetPropagation(**fields)  # pyright: ignore[reportArgumentType]


def test_a_configuration_file_names_the_mode() -> None:
    assert settings_from({"train": {"mode": "target"}}).train.mode == TargetPropagation()
    table = {"train": {"mode": {"kind": "target", "method": "gradient", "gate": 0.3}}}
    assert settings_from(table).train.mode == TargetPropagation(method="gradient", gate=0.3)
    assert settings_from({}).train.mode == Backprop()
    with pytest.raises(SpecError, match="did you mean 'target'"):
        settings_from({"train": {"mode": "targt"}})
    with pytest.raises(SpecError, match="gate"):
        settings_from({"train": {"mode": {"kind": "target", "gait": 1}}})


def test_params_of_the_network_alone_are_handed_out() -> None:
    told = learner("cpu", DEEP, TargetPropagation())
    after(told, batch(DEEP))
    assert isinstance(told.params(), Params)
    assert set(told.params()) == set(DEEP.param_specs())
