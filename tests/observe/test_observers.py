"""Observers hear of every layer in both directions, with the numbers that the arrays have."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.learners import reference_learner
from tests.networks import tiny_llama
from tests.train.problems import perceptron, waves
from volumetric.base.errors import CheckpointError, DeviceError, SpecError, UnsupportedError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.network import initialise
from volumetric.observe import (
    HttpObserver,
    JsonlObserver,
    LayerEvent,
    LogObserver,
    ObservedDevice,
    Stats,
    WindowObserver,
)
from volumetric.run import lower
from volumetric.train import (
    SGD,
    ArrayData,
    CrossEntropy,
    LearnerOptions,
    TrainConfig,
    token_windows,
    train,
)
from volumetric.train.device_learner import learner_on


class Kept:
    def __init__(self) -> None:
        self.events: list[LayerEvent] = []

    def observe(self, event: LayerEvent) -> None:
        self.events.append(event)

    def close(self) -> None:
        pass


def event(step: int = 1, mean: float = 0.5, where: str = "0.0.0.0", low: float = -1.0) -> LayerEvent:
    stats = Stats(min=low, max=2.0, mean=mean, active=0.75, total=4)
    return LayerEvent(mode="forward", step=step, where=where, kind="dense", stats=stats)


def test_statistics_are_those_of_the_array() -> None:
    stats = Stats.of(np.array([[-2.0, 0.0], [1e-7, 5.0]], np.float32))
    assert stats == Stats(min=-2.0, max=5.0, mean=pytest.approx(0.75), active=0.5, total=4)  # pyright: ignore[reportArgumentType]
    assert Stats.of(np.zeros((0, 3))).total == 0
    assert np.isnan(Stats.of(np.array([1.0, np.nan])).max)


def test_sums_of_statistics_are_those_of_the_whole() -> None:
    x = np.random.default_rng(0).normal(size=(7, 3))
    both = Stats.of(x[:2]) + Stats.of(x[2:])
    assert both.total == 21
    for name in ("min", "max", "mean", "active"):
        assert getattr(both, name) == pytest.approx(getattr(Stats.of(x), name))
    assert Stats.of(x) + Stats.of(x[:0]) == Stats.of(x)
    assert np.isnan((Stats.of(np.array([np.nan])) + Stats.of(x)).max)


def test_training_tells_of_every_layer_in_both_directions() -> None:
    network, kept = perceptron(4, 6, 1), Kept()
    params = initialise(network)
    train(network, params, waves(32, 16), TrainConfig(optimiser=SGD(lr=0.1)), observers=[kept])
    told = [(e.step, e.mode, e.where) for e in kept.events]
    once = [("forward", "0.0.0.0"), ("forward", "1.0.0.0"), ("backward", "1.0.0.0"), ("backward", "0.0.0.0")]
    assert told == [(step, *rest) for step in (1, 2) for rest in once]
    x = next(waves(32, 16).batches(0)).features
    hidden = np.tanh(x @ params["0.0.0.0/weight"].values().T + params["0.0.0.0/bias"].values())
    assert kept.events[0].stats.mean == pytest.approx(hidden.mean(), rel=1e-4)
    assert kept.events[0].stats.total == hidden.size


def test_watching_changes_nothing() -> None:
    network = perceptron(4, 6, 1)
    plain = train(network, initialise(network), waves())
    watched = train(network, initialise(network), waves(), observers=[Kept()])
    for key, store in plain.params.items():
        np.testing.assert_array_equal(store.values(), watched.params[key].values())


def test_a_learner_that_cannot_tell_says_so() -> None:
    class Blind:
        def __init__(self, network, params, options: LearnerOptions) -> None:
            inner = reference_learner(network, params, options)
            self.step, self.evaluate, self.measure, self.params, self.restore = (
                inner.step,
                inner.evaluate,
                inner.measure,
                inner.params,
                inner.restore,
            )
            self.state = inner.state

    network = perceptron(4, 6, 1)
    with pytest.raises(UnsupportedError, match="Blind does not support observers"):
        train(network, initialise(network), waves(), learner=Blind, observers=[Kept()])


def test_sequences_of_a_batch_are_one_event() -> None:
    inputs, targets = token_windows(np.arange(33) % 97, 8)
    kept, network = Kept(), tiny_llama()
    data = ArrayData(inputs=inputs, targets=targets, batch_size=4)
    train(network, initialise(network), data, TrainConfig(loss=CrossEntropy(), max_steps=1), observers=[kept])
    steps = lower(network).steps
    assert [e.where for e in kept.events] == [s.where for s in steps] + [s.where for s in reversed(steps)]
    assert kept.events[0].stats.total == 4 * 8 * 32


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_every_device_tells_what_the_reference_learner_tells(name: str) -> None:
    inputs, targets = token_windows(np.arange(33) % 97, 8)
    data = ArrayData(inputs=inputs, targets=targets, batch_size=4)
    network, config = tiny_llama(), TrainConfig(loss=CrossEntropy(), optimiser=SGD(lr=0.1), max_steps=2, accumulate=2)
    host, there = Kept(), Kept()
    train(network, initialise(network), data, config, observers=[host])
    train(network, initialise(network), data, config, learner=learner_on(device(name)), observers=[there])
    assert [(e.step, e.mode, e.where) for e in there.events] == [(e.step, e.mode, e.where) for e in host.events]
    for mine, theirs in zip(there.events, host.events, strict=True):
        assert mine.stats.total == theirs.stats.total
        scale = max(abs(theirs.stats.min), abs(theirs.stats.max))
        for field in ("min", "max", "mean"):
            assert getattr(mine.stats, field) == pytest.approx(getattr(theirs.stats, field), abs=2e-4 * scale)
        assert mine.stats.active == pytest.approx(theirs.stats.active, abs=0.01)


@pytest.mark.parametrize("name", DEVICES)
def test_watching_changes_no_bit_on_any_device(name: str) -> None:
    network = perceptron(4, 6, 1)
    learner = learner_on(device(name))
    plain = train(network, initialise(network), waves(), learner=learner)
    watched = train(network, initialise(network), waves(), learner=learner, observers=[Kept()])
    for key, store in plain.params.items():
        np.testing.assert_array_equal(store.values(), watched.params[key].values())


def test_inference_on_the_reference_device_can_be_observed() -> None:
    network, kept = tiny_llama(), Kept()
    plan, params = lower(network), initialise(network)
    executable = ObservedDevice([kept]).compile(plan, params)
    state = executable.new_state()
    ids = np.arange(5, dtype=np.int32)
    y = executable.forward(state, ids)
    executable.forward(state, ids[:1])
    assert [e.step for e in kept.events] == [1] * len(plan.steps) + [2] * len(plan.steps)
    assert {e.mode for e in kept.events} == {"forward"}
    plain = ReferenceDevice().compile(plan, params)
    np.testing.assert_array_equal(y, plain.forward(plain.new_state(), ids))


def test_windows_forget_old_steps() -> None:
    window = WindowObserver(2)
    for step, (mean, low) in enumerate([(9.0, -9.0), (1.0, -1.0), (2.0, -3.0)], start=1):
        window.observe(event(step, mean, low=low))
        window.observe(event(step, 7.0, where="1.0.0.0"))
    first, second = window.aggregates()
    assert (first.step, first.stats.mean, first.stats.min, first.stats.total) == (3, 1.5, -3.0, 8)
    assert (second.where, second.stats.mean) == ("1.0.0.0", 7.0)
    with pytest.raises(SpecError):
        WindowObserver(0)


def test_json_lines_hold_every_nth_step_and_odd_numbers(tmp_path: Path) -> None:
    observer = JsonlObserver(tmp_path / "deep" / "events.jsonl", every=2)
    for step in (1, 2, 3, 4):
        observer.observe(event(step, mean=float("nan") if step == 4 else 0.5))
    observer.close()
    lines = [json.loads(line) for line in (tmp_path / "deep" / "events.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4]
    assert lines[0] == event(2).describe()
    assert lines[1]["stats"]["mean"] == "nan"
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        JsonlObserver(tmp_path / "file" / "x.jsonl").observe(event())


class Crash:
    """Ends a run as a crash would, after some updates."""

    def __init__(self, after: int) -> None:
        self.after = after

    def observe(self, event: LayerEvent) -> None:
        if event.step > self.after:
            raise KeyboardInterrupt

    def close(self) -> None:
        pass


def test_a_resumed_run_tells_of_each_update_once(tmp_path: Path) -> None:
    config, network, path = TrainConfig(checkpoint_every=4), perceptron(4, 6, 1), tmp_path / "layers.jsonl"

    def run(*others: Crash, **settings: Any) -> None:
        with closing(JsonlObserver(path)) as lines:
            train(network, initialise(network), waves(24, 2), config, observers=[lines, *others], **settings)

    with pytest.raises(KeyboardInterrupt):
        run(Crash(10), checkpoints=tmp_path)
    with path.open("a") as file:
        file.write('{"mode": "forw')
    run(checkpoints=tmp_path, resume=True)
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert sorted(set(steps)) == list(range(1, 13))
    assert {steps.count(step) for step in steps} == {steps.count(1)}
    run()
    assert len(path.read_text().splitlines()) == len(steps)  # a run that begins has a record of its own


def test_a_file_that_is_no_record_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "layers.jsonl"
    path.write_text("not mine\n")
    with pytest.raises(CheckpointError, match="not a record"):
        JsonlObserver(path).start(3)
    assert path.read_text() == "not mine\n"


def test_the_log_has_a_line_for_each_layer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "volumetric.observe.observers"):
        for step in (1, 2):
            LogObserver(every=2).observe(event(step))
    assert [r.getMessage() for r in caplog.records] == [
        "forward 2 0.0.0.0 dense: min -1, mean 0.5, max 2, active 75.0 % of 4"
    ]


def test_http_answers_on_this_machine_alone_while_events_come() -> None:
    observer = HttpObserver(window=2)
    try:
        for step in (1, 2, 3):
            observer.observe(event(step, mean=float(step)))
        assert observer.address.startswith("http://127.0.0.1:")

        def get(path: str) -> object:
            with urllib.request.urlopen(observer.address + path, timeout=10) as answer:
                assert answer.headers["Content-Type"] == "application/json"
                return json.load(answer)

        assert get("/")[0]["stats"]["mean"] == 2.5  # pyright: ignore[reportIndexIssue]
        assert get("/latest?x=1") == [event(3, mean=3.0).describe()]
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            get("/nothing")
        missing.value.close()
        with pytest.raises(DeviceError, match="cannot listen"):
            HttpObserver(int(observer.address.rpartition(":")[2]))
    finally:
        observer.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(observer.address, timeout=2)
