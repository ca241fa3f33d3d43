"""Which device ``"auto"`` is for a run of training."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from volumetric import Clocked, Coord, Grid, Network, initialise
from volumetric.builders import sequential
from volumetric.layers import LSTM
from volumetric.network.weight_store import Params
from volumetric.train import MSE, AdamW, ArrayData, Systolic, TrainConfig, evaluate, train
from volumetric.train.small_runs import device_of_run


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOLUMETRIC_DEVICE", raising=False)


def choice(network: Network | Clocked, samples: int, config: TrainConfig, *shape: int) -> object:
    structure = network.network if isinstance(network, Clocked) else network
    x = np.zeros((samples, *shape, *structure.input_shape), np.float32)
    data = ArrayData(inputs=x, targets=x[..., :1])
    return device_of_run("auto", network, initialise(structure, seed=0), config, data)


SMALL = sequential(2, 1, hidden=(8,), activation="tanh")
RECURRENT = Network(
    grid=Grid(1), layers={Coord(0): LSTM(input_size=2, hidden_size=4)}, input_shape=(2,), input_dtype="float32"
)


@pytest.mark.parametrize(
    ("network", "samples", "config", "shape", "device"),
    [
        (SMALL, 4, TrainConfig(epochs=300), (), "reference"),
        (SMALL, 4, TrainConfig(epochs=30_000), (), "auto"),
        (SMALL, 4, TrainConfig(epochs=30_000, max_steps=100), (), "reference"),
        (SMALL, 100_000, TrainConfig(epochs=1), (), "auto"),
        (sequential(2, 1, hidden=(2000, 2000)), 320, TrainConfig(epochs=10), (), "auto"),
        (RECURRENT, 4, TrainConfig(epochs=20), (16,), "reference"),
        (RECURRENT, 4, TrainConfig(epochs=20), (1600,), "auto"),
        (Clocked(network=SMALL), 4, TrainConfig(epochs=20, mode=Systolic()), (16,), "reference"),
        (Clocked(network=SMALL), 4, TrainConfig(epochs=20, mode=Systolic()), (1600,), "auto"),
    ],
)
def test_small_runs_are_computed_by_numpy(
    network: Network | Clocked, samples: int, config: TrainConfig, shape: tuple[int, ...], device: str
) -> None:
    assert choice(network, samples, config, *shape) == device


def test_a_device_that_is_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ArrayData(inputs=np.zeros((4, 2), np.float32), targets=np.zeros((4, 1), np.float32))
    params = initialise(SMALL, seed=0)
    assert device_of_run("cpu", SMALL, params, TrainConfig(), data) == "cpu"
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "cpu")
    assert device_of_run("auto", SMALL, params, TrainConfig(), data) == "auto"


def test_training_and_judging_choose_alike(caplog: pytest.LogCaptureFixture) -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    y = np.array([[0], [1], [1], [0]], np.float32)
    config = TrainConfig(loss=MSE(), optimiser=AdamW(lr=0.05), epochs=40)
    params: Params = initialise(SMALL, seed=1)
    with caplog.at_level(logging.INFO, "volumetric.train"):
        result = train(SMALL, params, (x, y), config)
        judged = evaluate(SMALL, result.params, (x, y), config)
    assert sum("device auto: reference" in record.getMessage() for record in caplog.records) == 2
    named = train(SMALL, params, (x, y), config, device="reference")
    assert all(np.array_equal(named.params[key].values(), result.params[key].values()) for key in params)
    assert judged.loss == evaluate(SMALL, result.params, (x, y), config, device="reference").loss


def test_batches_larger_than_the_data_are_the_data() -> None:
    x = np.zeros((4, 2), np.float32)
    for size in (4, 10**9):
        data = ArrayData(inputs=x, targets=x[:, :1], batch_size=size)
        assert device_of_run("auto", SMALL, initialise(SMALL, seed=0), TrainConfig(epochs=300), data) == "reference"
