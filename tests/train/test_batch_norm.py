"""Batch norm in training: its running statistics are written with the weights and belong to the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.arrays import array
from tests.devices import DEVICES, device, graphs
from tests.oracles.learner import NumpyLearner
from tests.train.problems import waves
from tests.train.resuming import whole_and_resumed
from tests.train.test_device_learner import assert_close, follow, pair
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.builders import chain
from volumetric.layers import (
    LSTM,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    Dense,
    Flatten,
    Gate,
    LastStep,
    Parallel,
    Sequential,
)
from volumetric.network import Network, initialise
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run import RunOptions, lower
from volumetric.train import MSE, SGD, AdamW, Batch, LearnerOptions, TrainConfig, train
from volumetric.train.device_learner import DeviceLearner, learner_on
from volumetric.train.lora import LowRank

TORCH: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "torch" / "layers.json").read_text(encoding="utf-8")
)["training"]
ROWS = chain(
    [
        Dense(in_features=4, out_features=6, bias=False),
        BatchNorm1d(num_features=6, activation="tanh"),
        Dense(in_features=6, out_features=1),
    ],
    (4,),
)
IMAGES = chain(
    [
        Conv2d(in_channels=1, out_channels=3, kernel_size=3, bias=False),
        BatchNorm2d(num_features=3, momentum=None, activation="relu"),
        Flatten(),
        Dense(in_features=18, out_features=2),
    ],
    (1, 4, 5),
)
MEAN, VAR = "1.0.0.0/running_mean", "1.0.0.0/running_var"


def batch(count: int = 16, start: int = 0) -> Batch:
    data = waves()
    return Batch(data.features[start : start + count], array(data.targets)[start : start + count])


def images(seed: int, count: int = 5) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(rng.standard_normal((count, 1, 4, 5), np.float32), rng.standard_normal((count, 2), np.float32))


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_training_gives_the_weights_and_statistics_of_torch(name: str) -> None:
    layers = [
        Conv1d(in_channels=2, out_channels=3, kernel_size=2),
        BatchNorm1d(num_features=3, activation="relu"),
        Flatten(),
        Dense(in_features=9, out_features=1),
    ]
    network = chain(layers, (2, 4))
    begin = {key: np.array(value, np.float32) for key, value in TORCH["begin"].items()}
    given = {key: WeightStore.from_array(begin[key]) if key in begin else s for key, s in initialise(network).items()}
    options = LearnerOptions(loss=MSE(), optimiser=SGD(weight_decay=0.1))
    learner = DeviceLearner(network, Params(given), options, graphs(name))
    batches = [Batch(np.array(b["x"], np.float32), np.array(b["y"], np.float32)) for b in TORCH["batches"]]
    for _ in range(3):
        assert learner.step(batches, rate=0.05).fault is None
    params = learner.params()
    assert set(TORCH["end"]) == set(params)
    for key, want in TORCH["end"].items():
        np.testing.assert_allclose(params[key].values(), want, rtol=1e-4, atol=1e-5, err_msg=key)
    executable = device(name).compile(lower(network), params, RunOptions())
    found = executable.forward(executable.new_state(), batches[0].inputs, last_only=False)
    np.testing.assert_allclose(found.ravel(), TORCH["predicted"], rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("clip", [None, 0.5])
def test_devices_agree_on_weights_and_statistics(clip: float | None, name: str) -> None:
    follow(pair(name, ROWS, optimiser=AdamW(weight_decay=0.1), clip=clip), [batch()])
    follow(pair(name, IMAGES, optimiser=SGD(), clip=clip), [images(1), images(2, 3), images(3)])


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_statistics_in_containers_are_learned(name: str) -> None:
    branch = Sequential(layers=(BatchNorm1d(num_features=4), Dense(in_features=4, out_features=4, activation="tanh")))
    gate = Gate(in_features=4, out_features=2)
    layers = [
        branch,
        Parallel(branches=(branch, branch), combine="filter", gate=gate),
        Dense(in_features=4, out_features=1),
    ]
    learners = pair(name, chain(layers, (4,)), optimiser=SGD())
    follow(learners, [batch()])
    state = learners[1].state
    assert len(state.buffers) == 6
    assert all((value != 0).all() and (value != 1).all() for value in state.buffers.values())


@pytest.mark.parametrize("name", DEVICES)
def test_validation_uses_the_running_statistics_and_changes_nothing(name: str) -> None:
    reference, learner = pair(name, ROWS, optimiser=SGD())
    follow((reference, learner), [batch()])
    before = learner.state
    alone = [learner.evaluate(batch(1, i)).total for i in range(4)]
    assert sum(alone) == pytest.approx(learner.evaluate(batch(4)).total, rel=1e-5)  # samples do not see each other
    assert learner.evaluate(batch()).total == pytest.approx(reference.evaluate(batch()).total, rel=1e-5)
    assert_close(learner.state, before, 0.0)


@pytest.mark.parametrize("name", DEVICES)
def test_a_fault_leaves_the_statistics_as_they_were(name: str) -> None:
    _, learner = pair(name, ROWS, optimiser=SGD())
    learner.step([batch()], rate=0.01)
    before = learner.state
    odd = Batch(np.where(np.arange(4) == 1, np.inf, batch().features).astype(np.float32), batch().targets)
    for batches in ([odd], [batch(), odd], [odd, batch()]):
        assert learner.step(batches, rate=0.01).fault == "the input of the network"
        assert_close(learner.state, before, 0.0)
    huge = Batch(batch().features * np.float32(1e25), batch().targets)
    fault = learner.step([huge], rate=0.0).fault
    assert fault is not None
    assert_close(learner.state, before, 0.0)


@pytest.mark.parametrize("name", DEVICES)
def test_frozen_statistics_are_used_and_stay(name: str) -> None:
    params = dict(initialise(ROWS, seed=2))
    params[MEAN] = WeightStore.from_array(np.linspace(-1, 1, 6, dtype=np.float32))
    for options in (
        LearnerOptions(optimiser=SGD(), frozen=("1.*",)),
        LearnerOptions(optimiser=SGD(), overlay=LowRank(rank=2, targets=("0.0.0.0/weight",))),
    ):
        learners = (
            NumpyLearner(ROWS, Params(params), options),
            DeviceLearner(ROWS, Params(params), options, graphs(name)),
        )
        assert learners[1].step([batch(1)], rate=0.0).fault is None  # a batch of one has no statistics, and needs none
        learners[0].step([batch(1)], rate=0.0)
        follow(learners, [batch()])
        assert learners[1].state.buffers == {}
        np.testing.assert_array_equal(learners[1].params()[MEAN].values(), params[MEAN].values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_run_resumes_with_its_statistics_bit_for_bit(name: str, tmp_path: Path) -> None:
    data = waves(48)
    config = TrainConfig(optimiser=AdamW(lr=0.01), epochs=2, accumulate=2, checkpoint_every=1)

    def run(home: Path, *stop: Any, resume: bool = False) -> Any:
        return train(
            ROWS,
            initialise(ROWS),
            data,
            config,
            validation=0.25,
            learner=learner_on(device(name)),
            reporters=stop,
            checkpoints=home,
            resume=resume,
        )

    whole, again = whole_and_resumed(run, tmp_path, 3)
    for key in whole.params:
        np.testing.assert_array_equal(again.best[key].values(), whole.best[key].values(), err_msg=key)
    assert not (whole.params[VAR].values() == 1).any()


def test_a_checkpoint_without_statistics_is_refused() -> None:
    learner = NumpyLearner(ROWS, initialise(ROWS), LearnerOptions())
    state = learner.state
    other = type(state)(state.updates, state.masters, state.slots)
    with pytest.raises(CheckpointError, match="buffers of the checkpoint, as running statistics, do not match"):
        learner.restore(other)


def test_quantised_training_keeps_the_statistics_in_float32() -> None:
    learner = NumpyLearner(ROWS, initialise(ROWS), LearnerOptions(dtype={"*": "int8"}))
    learner.step([batch()], rate=0.01)
    assert str(learner.params()[VAR].scheme) == "float32"
    assert str(learner.params()["0.0.0.0/weight"].scheme) == "int8:g32"


@pytest.mark.parametrize("name", DEVICES)
def test_statistics_of_one_number_or_of_sequences_are_refused(name: str) -> None:
    for learner in pair(name, ROWS):
        with pytest.raises(ShapeError, match="more than one value per channel in a batch, got shape \\[1, 6\\]"):
            learner.step([batch(1)], rate=0.1)
        with pytest.raises(SpecError, match=r"batch_norm1d at 1\.0\.0\.0 takes statistics over the samples of a batch"):
            learner.step([Batch(batch().features.reshape(4, 4, 4), array(batch().targets).reshape(4, 4, 1))], rate=0.1)


@pytest.mark.parametrize("name", DEVICES)
def test_recurrent_layers_on_whole_samples_go_with_it(name: str) -> None:
    layers = [
        LSTM(input_size=3, hidden_size=4),
        LastStep(),
        BatchNorm1d(num_features=4),
        Dense(in_features=4, out_features=1),
    ]
    rng = np.random.default_rng(0)
    given = Batch(rng.standard_normal((6, 5, 3), np.float32), rng.standard_normal((6, 1), np.float32))
    follow(pair(name, chain(layers, (5, 3)), optimiser=SGD()), [given])


@pytest.mark.parametrize("name", DEVICES)
def test_without_running_statistics_inference_sees_the_whole_call(name: str) -> None:
    network = chain([BatchNorm1d(num_features=2, affine=False, track_running_stats=False)], (2,))
    executable = device(name).compile(lower(network), initialise(network), RunOptions())
    x = np.array([[0, 1], [2, 5]], np.float32)
    for last_only in (False, True):
        y = executable.forward(executable.new_state(), x, last_only=last_only)
        np.testing.assert_allclose(y[-1], [1, 1], atol=1e-5)


def test_statistics_are_nothing_to_train() -> None:

    network: Network = chain([BatchNorm1d(num_features=2, affine=False)], (2,))
    with pytest.raises(SpecError, match="no parameters to train"):
        NumpyLearner(network, initialise(network), LearnerOptions())
