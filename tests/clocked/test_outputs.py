"""Losses at any tap and tick of a machine: gradients, weights of ticks, windows, and what data are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import machine, rows, weights
from tests.devices import device
from volumetric import Clocked
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.train import (
    MSE,
    SGD,
    ArrayData,
    Batch,
    Huber,
    LearnerOptions,
    LearnerState,
    Losses,
    Systolic,
    TrainConfig,
    evaluate,
    train,
)
from volumetric.train.clocked_sequences import OutputReading
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.ticked_time import TickedTime

LOSSES: dict[str, Any] = {"output": MSE(), "tap": Huber(delta=0.7), "early": MSE(reduction="sum")}
WEIGHTS = {"tap": 0.5, "early": 0.02}


def tapped(seed: int) -> Clocked:
    """A random machine with two more taps, somewhere."""
    clocked = machine(seed)
    layers = list(clocked.network.layers)
    outputs = {"tap": layers[len(layers) // 2], "early": layers[0]}
    return dataclasses.replace(clocked, network=dataclasses.replace(clocked.network, outputs=outputs))


def learner(clocked: Clocked, graphs: Any, mode: Systolic, **more: Any) -> DeviceLearner:
    given = {"loss": LOSSES, "loss_weights": WEIGHTS, "optimiser": SGD(lr=1.0), **more}
    options = LearnerOptions(mode=mode, clocked=clocked, **given)
    return DeviceLearner(clocked.network, weights(clocked), options, graphs)


def batch(clocked: Clocked, count: int, per_row: int = 1, samples: int = 2) -> Batch:
    """Targets of rows at the output, of ticks at the tap, some of which weigh nothing."""
    rng = np.random.default_rng(5)
    shapes, ticks = {n: clocked.network.shapes[c][1:] for n, c in clocked.network.taps.items()}, count * per_row
    lengths = {"output": count, "tap": ticks, "early": count}
    targets = {name: rng.standard_normal((samples, n, *shapes[name])).astype("f4") for name, n in lengths.items()}
    masks = {"tap": rng.integers(0, 2, (samples, ticks)) * 0.75, "early": rng.random((samples, count))}
    resets = np.zeros((samples, count))
    resets[0, 2] = 1
    return Batch({**rows(clocked, samples, count), "resets": resets}, targets, masks)


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "per_row"), [(1, 1), (14, 2), (21, 3)])
def test_gradients_are_those_of_differences(seed: int, per_row: int) -> None:
    clocked = tapped(seed)
    given = batch(clocked, 4, per_row)
    mode = Systolic(ticks_per_row=per_row, delay={"output": 5, "tap": 3, "early": 0})
    one = learner(clocked, NumpyGraphs(np.float64), mode)
    before, losses = one.state, Losses.from_losses(LOSSES, WEIGHTS)
    tally = one.step([given], rate=1.0).tally
    assert [*tally.terms] == ["output", "tap", "early"]
    after = one.state.masters
    rng = np.random.default_rng(seed)
    way = {key: rng.standard_normal(w.shape) for key, w in before.masters.items()}
    slope = sum(float(((before.masters[key] - after[key]) * way[key]).sum()) for key in way)
    values = []
    for far in (1e-5, -1e-5):
        moved = {key: w + far * way[key] for key, w in before.masters.items()}
        one.restore(LearnerState(0, moved, before.slots))
        values.append(losses.value(one.evaluate(given)))
    assert slope != 0
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-6)


@pytest.mark.thorough
def test_taps_are_read_after_the_ticks_that_are_named() -> None:
    clocked = tapped(4)
    given = batch(clocked, 4, per_row=2)
    delay = {"output": 3, "tap": 1, "early": 0}
    one = learner(clocked, NumpyGraphs(), Systolic(ticks_per_row=2, delay=delay, window=6))
    tally, found = one.measure(given)
    stream = device("reference").stream(clocked, weights(clocked), batch=2)
    inputs = dict(given.inputs_by_name)
    resets = inputs.pop("resets").astype(np.int64)
    made = stream.run(inputs, per_row=2, resets=resets)
    rest = stream.run(ticks=4)
    whole = {name: np.concatenate([made[name], rest[name]], 1) for name in made}
    for name, every in {"output": 2, "tap": 1, "early": 2}.items():
        at = np.arange(found[name].shape[1]) * every + delay[name]
        np.testing.assert_allclose(found[name], whole[name][:, at], rtol=0, atol=1e-5, err_msg=name)
    masks: Any = given.mask
    gone = OutputReading(8, 1, 1).reached(resets, 2)
    assert gone.tolist() == [[1, 1, 1, 0, 1, 1, 1, 1], [1] * 8]  # the reset comes with tick 4
    wide = found["tap"].shape[-1]
    assert tally.terms["tap"].count == pytest.approx((masks["tap"] * gone).sum() * wide)


def test_windows_have_all_terms_of_the_whole() -> None:
    clocked = tapped(1)
    given = batch(clocked, 8, samples=3)
    delay = {"output": 4, "tap": 2, "early": 0}
    whole = learner(clocked, NumpyGraphs(), Systolic(delay=delay)).evaluate(given)
    cut = learner(clocked, NumpyGraphs(), Systolic(delay=delay, window=5))
    pieces = list(cut.windows(given))
    parts = [cut.step([piece], rate=0.0).tally for piece in pieces]
    assert [[*tally.terms] for tally in parts] == [["output", "tap", "early"], ["output", "tap", "early"], ["output"]]
    for name, terms in whole.terms.items():
        assert sum(tally.terms[name].count for tally in parts if name in tally.terms) == pytest.approx(terms.count)
        total = sum(tally.terms[name].total for tally in parts if name in tally.terms)
        assert total == pytest.approx(terms.total, rel=1e-5)
    anew = learner(clocked, NumpyGraphs(), Systolic(delay=delay, window=6, carry=False, ticks_per_row=2))
    shorter = list(anew.windows(batch(clocked, 4, per_row=2)))
    assert [piece.inputs_by_name["input"].shape[1] for piece in shorter] == [1] * 4
    assert [piece.arrays["targets.tap"].shape[1] for piece in shorter] == [2] * 4


def test_devices_learn_alike_and_a_tap_alone_is_learned() -> None:
    clocked = tapped(14)  # of four layers
    given, mode = batch(clocked, 3), Systolic(delay={"output": 3})
    made = [learner(clocked, device(name).graphs(), mode) for name in ("reference", "cpu")]
    assert isinstance(made[0].time, TickedTime)
    assert made[0].time.delays["early"] == clocked.latency("input", "early")
    for one in made:
        one.step([given], rate=0.1)
    for key, w in made[0].state.masters.items():
        np.testing.assert_allclose(made[1].state.masters[key], w, rtol=0, atol=1e-5, err_msg=key)
    inputs, targets = dict(given.inputs_by_name), given.arrays["targets.tap"]
    del inputs["resets"]
    config = TrainConfig(loss={"tap": MSE()}, optimiser=SGD(lr=0.1), mode=Systolic(delay=2), epochs=4)
    data = ArrayData(inputs=inputs, targets=targets, batch_size=2)
    result = train(clocked, weights(clocked), data, config, device="cpu", validation=data)
    assert result.history[-1].loss < result.history[0].loss
    found = evaluate(clocked, result.params, data, config, device="cpu")
    assert found.loss == result.history[-1].validation_loss


def test_what_does_not_fit_is_refused_by_name() -> None:
    clocked, graphs = tapped(4), NumpyGraphs()
    with pytest.raises(SpecError, match="delay of output 'colour', which has no loss"):
        learner(clocked, graphs, Systolic(delay={"colour": 1}))
    with pytest.raises(SpecError, match="systolic: delay of output 'tap' must be 0 or more ticks, got -1"):
        Systolic(delay={"tap": -1})
    with pytest.raises(SpecError, match="a window of 4 ticks is too short for a delay of 6"):
        learner(clocked, graphs, Systolic(delay={"tap": 6, "output": 1}, window=4))
    with pytest.raises(SpecError, match="a window of 4 ticks is too short for a delay of 13"):
        learner(clocked, graphs, Systolic(window=4))  # which is that of the output
    one = learner(clocked, graphs, Systolic(ticks_per_row=2, delay=1))
    given = batch(clocked, 4, per_row=2)
    for name, change, match in (
        ("targets", {"tap": (2, 7)}, r"output 'tap': targets: expected \[2, 4, …\], or \[2, 8, …\] with a"),
        ("mask", {"tap": (2, 4)}, r"output 'tap': mask: expected \[2, 8, …\], got \[2, 4\]"),
        ("mask", {"early": (2, 8)}, r"output 'early': mask: expected \[2, 4, …\], got \[2, 8\]"),
    ):  # fmt: skip
        wrong = {key: np.zeros(shape) for key, shape in change.items()}
        parts: dict[str, Any] = {"targets": given.targets, "mask": given.mask}
        parts[name] = {**parts[name], **wrong}
        with pytest.raises(ShapeError, match=match):
            one.evaluate(Batch(given.inputs, **parts))
    short = learner(clocked, graphs, Systolic(ticks_per_row=2, delay=1, window=2, carry=False))
    with pytest.raises(SpecError, match="a window of 2 ticks is too short for a row") as caught:
        list(short.windows(given))
    assert caught.value.hint == "set window=3 or more"
