"""The loop on real tasks: it learns, in every numeric type, validates, stops, reports, and stops when numbers break."""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from tests.arrays import array
from tests.learners import reference_learner
from tests.networks import tiny_llama
from tests.train.problems import XOR, chain, perceptron, waves
from volumetric.base.errors import SpecError
from volumetric.dtypes import DTYPES, DType
from volumetric.layers import Dense
from volumetric.network import Network, initialise
from volumetric.train import (
    BCE,
    SGD,
    AdamW,
    ArrayData,
    Cosine,
    CrossEntropy,
    CsvReporter,
    DivergedError,
    EpochEvent,
    Event,
    Huber,
    JsonlReporter,
    LearnerOptions,
    LogReporter,
    Momentum,
    Optimiser,
    RMSprop,
    StepDecay,
    StepEvent,
    StopEvent,
    TrainConfig,
    TrainResult,
    WarmUp,
    token_windows,
    train,
)


class Events:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self.closed = 0

    def start(self, step: int, epoch: int) -> None:
        self.began = (step, epoch)

    def report(self, event: Event) -> None:
        self.all.append(event)

    def close(self) -> None:
        self.closed += 1

    @property
    def steps(self) -> list[StepEvent]:
        return [event for event in self.all if isinstance(event, StepEvent)]


def outputs(network: Network, result: TrainResult, x: np.ndarray) -> np.ndarray:
    from volumetric.devices.reference_device import ReferenceDevice
    from volumetric.run import lower

    executable = ReferenceDevice().compile(lower(network), result.params)
    return executable.forward(executable.new_state(), x, last_only=False)


def fall(result: TrainResult) -> float:
    return result.history[-1].loss / result.history[0].loss


def test_a_perceptron_learns_xor() -> None:
    network = perceptron(2, 8, 1)
    config = TrainConfig(loss=BCE(), optimiser=AdamW(lr=0.05), epochs=150)
    result = train(network, initialise(network, seed=1), XOR, config)
    assert fall(result) < 0.1
    assert ((outputs(network, result, XOR[0]) > 0) == (XOR[1] > 0.5)).all()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("optimiser", "loss"),
    [
        (SGD(lr=0.2), Huber()),
        (Momentum(lr=0.05, nesterov=True), Huber(delta=0.5)),
        (RMSprop(lr=0.01), Huber()),
        (AdamW(lr=0.02), Huber()),
    ],
    ids=lambda value: value.kind,
)
def test_every_optimiser_learns_a_regression(optimiser: Optimiser, loss: Huber) -> None:
    network = perceptron(4, 16, 1)
    config = TrainConfig(loss=loss, optimiser=optimiser, epochs=60, schedule=WarmUp(steps=4, then=Cosine(steps=240)))
    assert fall(train(network, initialise(network, seed=1), waves(), config)) < 0.1


def test_a_transformer_memorises_a_sequence() -> None:
    network = tiny_llama(vocabulary=16, width=16, blocks=1, heads=2, kv_heads=1, head_dim=8)
    ids = np.random.default_rng(4).integers(0, 16, 17)
    config = TrainConfig(loss=CrossEntropy(), optimiser=AdamW(lr=0.02), clip=1.0, epochs=60)
    result = train(network, initialise(network, seed=1), token_windows(ids, 16), config)
    assert fall(result) < 0.1
    assert outputs(network, result, ids[:-1].astype(np.int32)).argmax(-1).tolist() == ids[1:].tolist()


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_training_with_quantised_weights_learns_in_every_type(dtype: DType) -> None:
    network = perceptron(4, 32, 1)
    config = TrainConfig(optimiser=AdamW(lr=0.01), epochs=40, dtype=dtype)
    data = waves(batch_size=32)
    result = train(network, initialise(network, seed=1), data, config, device="cpu")  # GPUs hold no 64 bits
    # A weight of one or two bits cannot fit the function as closely; it must still find most of it.
    assert fall(result) < (0.5 if dtype.bits <= 2 else 0.1)
    assert result.params["0.0.0.0/weight"].scheme.dtype is dtype
    stored = np.square(outputs(network, result, data.features) - array(data.targets)).mean()
    untrained = np.square(array(data.targets)).mean()
    assert stored < (0.5 if dtype.bits <= 2 else 0.1) * untrained


def test_validation_keeps_the_best_and_stops_when_it_gets_no_better() -> None:
    network, rng = perceptron(4, 32, 1), np.random.default_rng(0)
    noise = ArrayData(inputs=rng.standard_normal((24, 4)), targets=rng.standard_normal((24, 1)), batch_size=4)
    config = TrainConfig(optimiser=AdamW(lr=0.05), epochs=100, patience=3)
    result = train(network, initialise(network), noise, config, validation=0.5, device="reference")
    losses = [event.validation_loss for event in result.history]
    assert result.reason == "patience"
    assert len(losses) < 100
    best = int(np.argmin(np.array(losses, float)))
    assert best == len(losses) - 4
    assert [event.improved for event in result.history[-4:]] == [True, False, False, False]
    _, held = noise.split(0.5)

    def loss_of(params) -> float:
        tally = [reference_learner(network, params, LearnerOptions()).evaluate(b) for b in held.batches(0)]
        return sum(t.total for t in tally) / sum(t.count for t in tally)

    assert loss_of(result.best) == pytest.approx(losses[best], rel=1e-14)
    assert loss_of(result.params) == pytest.approx(losses[-1], rel=1e-14)


def test_min_delta_asks_for_more() -> None:
    network = perceptron(4, 4, 1)
    config = TrainConfig(optimiser=SGD(lr=1e-6), epochs=9, patience=2, min_delta=0.1)
    assert len(train(network, initialise(network), waves(), config, validation=0.25).history) == 3


def test_rates_follow_the_schedule_and_steps_count_updates() -> None:
    network, events = perceptron(4, 4, 1), Events()
    config = TrainConfig(optimiser=SGD(lr=0.5), schedule=StepDecay(every=2, factor=0.5), accumulate=3, epochs=2)
    result = train(network, initialise(network), waves(), config, reporters=[events])
    assert [event.rate for event in events.steps] == [0.5, 0.5, 0.25, 0.25]  # 4 batches: groups of 3 and 1
    assert [event.step for event in events.steps] == [1, 2, 3, 4]
    assert [event.epoch for event in events.steps] == [0, 0, 1, 1]
    assert (result.steps, result.reason) == (4, "epochs")
    assert [type(event) for event in events.all[2:4]] == [EpochEvent, StepEvent]
    assert isinstance(events.all[-1], StopEvent)
    assert (events.began, events.closed) == ((0, 0), 1)


def test_max_steps_stops_in_the_middle() -> None:
    network = perceptron(4, 4, 1)
    result = train(network, initialise(network), waves(), TrainConfig(epochs=9, max_steps=6))
    assert (result.steps, result.reason, len(result.history)) == (6, "max_steps", 2)
    whole, part = result.history
    assert (whole.step, whole.epoch, part.step, part.epoch) == (4, 0, 6, 1)


def test_an_epoch_that_max_steps_ends_is_told_and_judged(tmp_path: Path) -> None:
    network, told = perceptron(4, 4, 1), list[float]()
    data, config = waves(), TrainConfig(epochs=9, max_steps=3, optimiser=SGD(lr=0.1))
    options = {"reporters": [lambda e: told.append(e.loss) if isinstance(e, StepEvent) else None], "validation": data}
    result = train(network, initialise(network), data, config, checkpoints=tmp_path, **options)
    [part] = result.history
    assert part.loss == pytest.approx(np.mean(told))
    assert part.validation_loss is not None
    assert part.improved
    assert all((result.best[key].values() == store.values()).all() for key, store in result.params.items())
    again = dataclasses.replace(config, max_steps=4)  # the rest of that epoch
    resumed = train(network, initialise(network), data, again, checkpoints=tmp_path, resume=True, **options)
    straight = train(network, initialise(network), data, again, validation=data)
    assert resumed.history == straight.history  # one event, of the whole epoch


def test_generators_are_data() -> None:
    network, weights = perceptron(2, 4, 1), np.array([[0.5], [-1.0]])

    def batches(epoch: int):
        rng = np.random.default_rng(epoch)
        for _ in range(4):
            x = rng.standard_normal((8, 2))
            yield x, x @ weights

    config = TrainConfig(optimiser=AdamW(lr=0.05), epochs=30)
    assert fall(train(network, initialise(network), batches, config)) < 0.1
    with pytest.raises(SpecError, match="only arrays can be split"):
        train(network, initialise(network), batches, validation=0.5)


def test_history_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = perceptron(4, 4, 1)
    reporters = [JsonlReporter(tmp_path / "a" / "run.jsonl"), CsvReporter(tmp_path / "run.csv"), LogReporter(every=3)]
    with caplog.at_level(logging.INFO, logger="volumetric.train"):
        result = train(
            network, initialise(network), waves(80), TrainConfig(epochs=2), validation=0.2, reporters=reporters
        )
    lines = [json.loads(line) for line in (tmp_path / "a" / "run.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [*["step"] * 4, "epoch", *["step"] * 4, "epoch", "stop"]
    assert [line["loss"] for line in lines if line["event"] == "epoch"] == [event.loss for event in result.history]
    assert lines[-1] == {"event": "stop", "step": 8, "epoch": 2, "reason": "epochs", "where": None}
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [row["event"] for row in rows] == [line["event"] for line in lines]
    assert float(rows[4]["validation_loss"]) == result.history[0].validation_loss
    assert rows[0]["validation_loss"] == ""
    messages = [record.getMessage() for record in caplog.records]
    assert sum(message.startswith("step ") for message in messages) == 2
    assert sum("validation loss" in message for message in messages) == 2


def poisoned(network: Network, tmp_path: Path, events: Events) -> DivergedError:
    """Train on data whose seventh batch breaks the numbers."""
    good, bad = np.ones((2, 4), np.float32), np.full((2, 4), 1e25, np.float32)

    def batches(epoch: int):
        for i in itertools.count():
            yield bad if i == 6 else good, np.zeros((2, 1), np.float32)

    config = TrainConfig(optimiser=SGD(lr=1e-3), checkpoint_every=2)
    with pytest.raises(DivergedError) as caught:
        train(network, initialise(network), batches, config, checkpoints=tmp_path / "run", reporters=[events])
    return caught.value


def test_broken_numbers_stop_with_step_and_layer_and_keep_the_checkpoint(tmp_path: Path) -> None:
    network, events = (
        chain(
            Dense(in_features=4, out_features=4),
            Dense(in_features=4, out_features=4, activation="relu2"),
            Dense(in_features=4, out_features=1),
            inputs=4,
        ),
        Events(),
    )
    error = poisoned(network, tmp_path, events)
    assert str(error).startswith("step 7: the output of dense at 1.0.0.0 is not finite: the learning rate is ")
    assert (error.step, error.where) == (7, "the output of dense at 1.0.0.0")
    assert error.checkpoint == tmp_path / "run" / "step-0000000006.npz"
    assert error.hint is not None
    assert str(error.checkpoint) in error.hint
    assert events.all[-1] == StopEvent(step=7, epoch=0, reason="diverged", where=error.where)
    assert events.closed == 1
    config = TrainConfig(optimiser=SGD(lr=1e-3), max_steps=6)
    batch = np.ones((2, 4), np.float32), np.zeros((2, 1), np.float32)
    kept = train(
        network,
        initialise(network),
        lambda _: itertools.repeat(batch),
        config,
        checkpoints=tmp_path / "run",
        resume=True,
    )
    assert kept.steps == 6
    assert all(np.isfinite(store.values()).all() for store in kept.params.values())


def test_a_broken_validation_names_the_number() -> None:
    network = perceptron(4, 4, 1)
    odd = (np.full((2, 4), np.inf, np.float32), np.zeros((2, 1), np.float32))
    with pytest.raises(DivergedError, match=r"step 4: validation inputs\[0, 0\] is inf, and 7 more"):
        train(network, initialise(network), waves(), validation=odd)


def test_another_learner_can_take_the_place_of_the_reference() -> None:
    network = perceptron(4, 4, 1)
    double = functools.partial(reference_learner, dtype=np.float64)
    plain, other = (
        train(network, initialise(network), waves(), TrainConfig(epochs=3), learner=each)
        for each in (reference_learner, double)
    )
    assert plain.history != other.history
    assert plain.history[-1].loss == pytest.approx(other.history[-1].loss, rel=1e-5)


def test_settings_are_checked() -> None:
    network = perceptron(4, 4, 1)
    with pytest.raises(SpecError, match="patience needs validation"):
        train(network, initialise(network), waves(), TrainConfig(patience=1))
    for name in ("epochs", "accumulate", "max_steps"):
        with pytest.raises(SpecError, match=f"{name} must be at least 1"):
            dataclasses.replace(TrainConfig(), **{name: 0})
    with pytest.raises(SpecError, match="clip"):
        train(network, initialise(network), waves(), TrainConfig(clip=0.0))
