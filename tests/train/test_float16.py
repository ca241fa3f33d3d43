"""Training with products in float16: float32 weights, and a loss scale that adapts on the device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.devices import graphs
from tests.train.problems import perceptron, waves
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.builders import transformer
from volumetric.layers import Conv2d, Dense, Flatten
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run.graph.loss_scale import FIRST, INTERVAL, LEAST, LOSS_SCALE, MOST
from volumetric.train import (
    SGD,
    Adam,
    ArrayData,
    Batch,
    CrossEntropy,
    DivergedError,
    LearnerOptions,
    LearnerState,
    TrainConfig,
    train,
)
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.modes import TargetPropagation

NETWORK = perceptron(4, 16, 1)
DATA = waves()
WIDE = perceptron(20, 32, 16)
_rng = np.random.default_rng(0)
BATCH = Batch(_rng.normal(size=(33, 20)).astype(np.float32), _rng.normal(size=(33, 16)).astype(np.float32))


def learner(device: str = "reference", compute: str = "float16", network: Network = WIDE) -> DeviceLearner:
    options = LearnerOptions(compute=compute, optimiser=Adam(lr=0.01))  # pyright: ignore[reportArgumentType]
    return DeviceLearner(network, initialise(network, seed=2), options, graphs(device))


def scaled_by(state: LearnerState, factor: float, count: float = 0.0) -> LearnerState:
    return dataclasses.replace(state, buffers={**state.buffers, LOSS_SCALE: np.array([factor, count], np.float32)})


def test_losses_end_where_those_of_float32_do() -> None:
    ends = {}
    for compute in ("float32", "float16"):
        config = TrainConfig(optimiser=Adam(lr=0.02), epochs=60, compute=compute)
        ends[compute] = [event.loss for event in train(NETWORK, DATA, config, device="reference").history]
    assert ends["float16"] != ends["float32"]
    assert ends["float16"][-1] < 0.05 * ends["float16"][0]
    assert abs(ends["float16"][-1] / ends["float32"][-1] - 1) < 0.1


@pytest.mark.thorough
def test_a_transformer_ends_where_it_does_in_float32() -> None:
    network = transformer(11, width=16, blocks=1, heads=2, tied=False)
    ids = np.random.default_rng(0).integers(0, 4, (32, 25)).cumsum(1).astype(np.int32) % 11
    ends = []
    for compute in ("float32", "float16"):
        config = TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=0.02), epochs=6, clip=1.0, compute=compute)
        data = ArrayData(inputs=ids[:, :-1], targets=ids[:, 1:], batch_size=8)
        ends.append([event.loss for event in train(network, data, config, device="reference").history])
    assert ends[1][-1] < 0.8 * ends[1][0]
    np.testing.assert_allclose(ends[1], ends[0], rtol=5e-3)


@pytest.mark.parametrize("device", ["reference", "gpu"])
def test_an_overflow_skips_the_update_and_halves_the_scale(device: str) -> None:
    one = learner(device)
    before = scaled_by(one.state, MOST, 7.0)
    one.restore(before)
    large = Batch(BATCH.inputs, np.asarray(BATCH.targets) * np.float32(1e5))
    report = one.step([large], rate=0.01)
    assert (report.fault, report.gradient_norm, report.clipped) == (None, np.inf, False)
    after = one.state
    assert after.updates == 1
    np.testing.assert_array_equal(after.buffers[LOSS_SCALE], [MOST / 2, 0])
    for key, weight in before.masters.items():
        np.testing.assert_array_equal(after.masters[key], weight)
        assert not any(slots[key].any() for slots in after.slots.values())
    skipped = [one.step([large], rate=0.01).gradient_norm == np.inf for _ in range(20)]
    assert skipped == sorted(skipped, reverse=True)
    assert not skipped[-1]
    assert one.state.buffers[LOSS_SCALE][0] == MOST / 2 ** (1 + sum(skipped))
    assert any((one.state.masters[key] != weight).any() for key, weight in before.masters.items())


@pytest.mark.parametrize("device", ["reference", "gpu"])
def test_the_scale_grows_after_good_updates(device: str) -> None:
    one = learner(device)
    np.testing.assert_array_equal(one.state.buffers[LOSS_SCALE], FIRST)
    one.restore(scaled_by(one.state, 256.0, INTERVAL - 2))
    for want in ([256, INTERVAL - 1], [512, 0], [512, 1]):
        assert np.isfinite(one.step([BATCH], rate=0.01).gradient_norm)
        np.testing.assert_array_equal(one.state.buffers[LOSS_SCALE], want)
    one.restore(scaled_by(one.state, MOST, INTERVAL - 1))
    small = Batch(np.asarray(BATCH.inputs) * np.float32(1e-6), np.asarray(BATCH.targets) * 0)
    one.step([small], rate=0.0)
    assert one.state.buffers[LOSS_SCALE][0] == MOST


def test_gradients_do_not_depend_on_the_scale() -> None:
    norms, losses = [], []
    for factor in (1.0, 256.0, FIRST[0]):
        one = learner()
        one.restore(scaled_by(one.state, factor))
        report = one.step([BATCH], rate=0.01)
        norms.append(report.gradient_norm)
        losses.append(one.evaluate(BATCH).total)
    np.testing.assert_allclose(norms, norms[0], rtol=1e-3)
    np.testing.assert_allclose(losses, losses[0], rtol=1e-3)


def test_small_gradients_are_lost_without_the_scale() -> None:
    moves = {}
    for name, factor in (("float32", 0.0), ("float16", FIRST[0]), ("unscaled", 1.0)):
        options = LearnerOptions(
            compute="float32" if name == "float32" else "float16", optimiser=SGD(), loss_weights={"output": 1e-6}
        )
        one = DeviceLearner(WIDE, initialise(WIDE, seed=2), options, graphs("reference"))
        before = one.state
        one.restore(scaled_by(before, factor) if factor else before)
        one.step([BATCH], rate=1e6)
        moves[name] = one.state.masters["0.0.0.0/weight"] - before.masters["0.0.0.0/weight"]
    largest = np.abs(moves["float32"]).max()
    np.testing.assert_allclose(moves["float16"], moves["float32"], rtol=0, atol=5e-3 * largest)
    assert np.abs(moves["unscaled"] - moves["float32"]).max() > 0.2 * largest


@pytest.mark.parametrize("device", ["reference", "gpu"])
def test_accumulated_gradients_are_skipped_together(device: str) -> None:
    one = learner(device)
    before = one.state
    one.restore(scaled_by(before, MOST))
    large = Batch(BATCH.inputs, np.asarray(BATCH.targets) * np.float32(1e5))
    assert one.step([BATCH, large], rate=0.01).gradient_norm == np.inf
    np.testing.assert_array_equal(one.state.buffers[LOSS_SCALE], [MOST / 2, 0])
    one.restore(scaled_by(before, FIRST[0]))
    assert 0 < one.step([BATCH, BATCH], rate=0.01).gradient_norm < np.inf
    np.testing.assert_array_equal(one.state.buffers[LOSS_SCALE], [FIRST[0], 1])


@pytest.mark.parametrize("device", ["reference", "gpu"])
def test_updates_submitted_together_skip_as_single_ones_do(device: str) -> None:
    single, together = learner(device), learner(device)
    large = Batch(BATCH.inputs, np.asarray(BATCH.targets) * np.float32(20))
    before, batches, rates = scaled_by(single.state, MOST), [large] * 9, [0.01] * 9
    for one in (single, together):
        one.restore(before)
    alone = [single.step([batch], rate=0.01) for batch in batches]
    reports = together.steps(batches, rates=rates)
    while len(reports) < len(batches):
        reports += together.steps(batches[len(reports) :], rates=rates[len(reports) :])
    assert [report.gradient_norm for report in reports] == [report.gradient_norm for report in alone]
    assert 0 < sum(report.gradient_norm == np.inf for report in reports) < len(batches)
    for kind in ("masters", "buffers"):
        for key, value in getattr(single.state, kind).items():
            np.testing.assert_array_equal(getattr(together.state, kind)[key], value)
    assert together.state.updates == len(batches)


def test_a_forward_overflow_names_the_layer_and_the_way_out() -> None:
    data = dataclasses.replace(DATA, inputs=np.asarray(DATA.inputs) * np.float32(1e6))
    with pytest.raises(DivergedError, match=r"0\.0\.0\.0.* float16, up to 65504") as caught:
        train(NETWORK, data, TrainConfig(compute="float16"), device="reference")
    assert 'compute="float32"' in (caught.value.hint or "")
    assert np.isfinite(train(NETWORK, data, TrainConfig(), device="reference").history[-1].loss)


def test_gradients_that_overflow_at_the_least_scale_are_a_fault() -> None:
    one = learner()
    one.restore(scaled_by(one.state, LEAST))
    report = one.step([Batch(BATCH.inputs, np.asarray(BATCH.targets) * np.float32(1e12))], rate=0.01)
    assert report.fault is not None
    assert one.state.buffers[LOSS_SCALE][0] == LEAST


def test_a_run_whose_updates_were_all_skipped_says_so(caplog: pytest.LogCaptureFixture) -> None:
    data = dataclasses.replace(DATA, targets=np.asarray(DATA.targets) * np.float32(1e8))
    config = TrainConfig(compute="float16", max_steps=2)
    first = initialise(NETWORK, seed=1)
    result = train(NETWORK, first, data, config, device="reference")
    assert all(np.array_equal(result.params[key].values(), store.values()) for key, store in first.items())
    assert "every update was skipped" in caplog.text
    caplog.clear()
    train(NETWORK, first, DATA, config, device="reference")
    assert "skipped" not in caplog.text


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    def config(epochs: int) -> TrainConfig:
        return TrainConfig(optimiser=Adam(lr=0.02), epochs=epochs, compute="float16")

    whole = train(NETWORK, DATA, config(4), device="reference", checkpoints=tmp_path / "whole")
    train(NETWORK, DATA, config(2), device="reference", checkpoints=tmp_path / "parts")
    parts = train(NETWORK, DATA, config(4), device="reference", checkpoints=tmp_path / "parts", resume=True)
    for key, store in whole.params.items():
        np.testing.assert_array_equal(parts.params[key].values(), store.values())
    assert "compute" not in TrainConfig().describe()
    assert TrainConfig(compute="float16").describe()["compute"] == "float16"


def test_what_cannot_compute_so_says_it() -> None:
    with pytest.raises(UnsupportedError, match="no products of float16") as caught:
        learner("cpu")
    assert "device='gpu'" in (caught.value.hint or "")
    with pytest.raises(SpecError, match="needs mode 'backprop'"):
        LearnerOptions(compute="float16", mode=TargetPropagation())
    with pytest.raises(SpecError, match="compute"):
        TrainConfig(compute="int8")  # pyright: ignore[reportArgumentType]


def convolutional() -> Network:
    layers = (
        Conv2d(in_channels=3, out_channels=16, kernel_size=3, padding=1, activation="relu"),
        Conv2d(in_channels=16, out_channels=20, kernel_size=3, activation="relu"),
        Flatten(),
        Dense(in_features=20 * 36, out_features=16),
    )
    placed = {Coord(z): spec for z, spec in enumerate(layers)}
    return Network(grid=Grid(len(layers)), layers=placed, input_shape=(3, 8, 8), input_dtype="float32")


@pytest.mark.parametrize("kind", ["dense", pytest.param("convolutional", marks=pytest.mark.thorough)])
def test_the_gpu_rounds_as_the_reference_does(kind: str) -> None:
    rng = np.random.default_rng(0)
    if kind == "dense":
        network, batch = WIDE, BATCH
    else:
        network = convolutional()
        batch = Batch(rng.normal(size=(16, 3, 8, 8)).astype(np.float32), rng.normal(size=(16, 16)).astype(np.float32))
    both = {name: learner(name, network=network) for name in ("reference", "gpu")}
    plain = learner("reference", "float32", network)
    for one in (*both.values(), plain):
        for _ in range(3):
            report = one.step([batch], rate=0.01)
            assert np.isfinite(report.gradient_norm)
    largest = max(float(np.abs(w).max()) for w in plain.state.masters.values())
    for key, want in both["reference"].state.masters.items():
        np.testing.assert_allclose(both["gpu"].state.masters[key], want, rtol=0, atol=3e-3 * largest)
    assert any((both["gpu"].state.masters[key] != w).any() for key, w in plain.state.masters.items())
