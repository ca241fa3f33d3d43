"""Several updates in one submission: the bits, the events and the ends of a run are those of single updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.train.problems import waves
from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.builders import chain
from volumetric.layers import LSTM, BatchNorm1d, Dense, Dropout, Embedding
from volumetric.network import Network, initialise
from volumetric.observe import LogObserver
from volumetric.train import (
    SGD,
    Adam,
    AdamW,
    ArrayData,
    CrossEntropy,
    DivergedError,
    Momentum,
    RMSprop,
    StepEvent,
    StreamData,
    TrainConfig,
    TrainResult,
    train,
)
from volumetric.train.data import Batch
from volumetric.train.device_learner import learner_on
from volumetric.train.learner import LearnerOptions, SeriesLearner
from volumetric.train.picked_batch import picked_batches
from volumetric.train.schedules import Cosine, WarmUp
from volumetric.train.submission_pace import MOST, SubmissionPace
from volumetric.train.training_events import Event

ROWS = chain(
    [Dense(in_features=4, out_features=8, activation="tanh"), Dropout(p=0.3), Dense(in_features=8, out_features=1)],
    (4,),
)
"""In training it draws numbers at every update."""


def trained(
    name: str, steps: int | None, network: Network = ROWS, data: Any = None, **settings: Any
) -> tuple[TrainResult, list[Any]]:
    events: list[Any] = []
    config = TrainConfig(**{"epochs": 2, "steps_per_submission": steps, **settings})
    reporters = [
        lambda event: events.append((type(event).__name__, getattr(event, "step", 0), getattr(event, "loss", 0)))
    ]
    params = initialise(network, seed=1)
    data = waves(samples=40, batch_size=8) if data is None else data
    return train(network, params, data, config, reporters=reporters, device=device(name)), events


def weights(result: TrainResult) -> dict[str, Array]:
    return {key: store.values() for key, store in result.params.items()}


def assert_alike(name: str, together: int = 3, network: Network = ROWS, data: Any = None, **settings: Any) -> None:
    (one, events), (several, others) = (trained(name, steps, network, data, **settings) for steps in (1, together))
    assert events == others
    assert weights(one).keys() == weights(several).keys()
    for key, value in weights(one).items():
        np.testing.assert_array_equal(weights(several)[key], value, err_msg=key)


OPTIMISERS = [
    SGD(lr=0.1, weight_decay=0.01),
    Momentum(lr=0.05, nesterov=True),
    RMSprop(lr=0.01, centered=True, momentum=0.5),
    Adam(lr=0.01),
    AdamW(lr=0.01),
]


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda of: of.kind)
def test_every_optimiser_has_the_same_bits(optimiser: Any, submitted: list[int]) -> None:
    assert_alike("gpu", optimiser=optimiser, schedule=WarmUp(steps=3, then=Cosine(steps=7)), clip=0.5)
    assert submitted == [3, 3, 3]  # of ten updates in two epochs


def test_submissions_cross_epochs_unless_somebody_looks_at_the_weights(submitted: list[int]) -> None:
    few = waves(samples=8, batch_size=8)
    assert_alike("gpu", together=4, data=few, epochs=10)
    assert submitted == [4, 4, 2]
    submitted.clear()
    assert_alike("gpu", together=4, data=few, epochs=10, max_steps=7)
    assert submitted == [4, 3]
    submitted.clear()
    lookers: list[dict[str, Any]] = [{"validation": 0.2}, {"metric": lambda params: 0.0}]
    for looking in lookers:
        config = TrainConfig(epochs=2, steps_per_submission=8)
        result = train(ROWS, initialise(ROWS, seed=1), waves(40, 8), config, device=device("gpu"), **looking)
        assert len(result.history) == 2
    assert submitted == [4] * 2 + [5] * 2


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_has_the_same_bits_and_events(name: str, submitted: list[int]) -> None:
    assert_alike(name, together=4)
    assert submitted == [4, 4, 2]


def test_the_last_batch_of_an_epoch_may_be_smaller(submitted: list[int]) -> None:
    assert_alike("gpu", together=8, data=waves(samples=37, batch_size=8))
    assert submitted == [8, 2]


def test_batches_that_are_not_arrays_in_memory_are_submitted_together_if_asked(submitted: list[int]) -> None:
    data = waves(samples=40, batch_size=8)
    assert_alike("gpu", together=4, data=StreamData(lambda epoch: list(data.batches(epoch))))
    assert submitted == [4] * 2


def test_masked_and_ignored_terms_have_their_own_counts(submitted: list[int]) -> None:
    data = waves(samples=40, batch_size=8)
    mask = np.random.default_rng(0).uniform(0, 2, 40).astype(np.float32)
    assert_alike("gpu", data=ArrayData(inputs=data.inputs, targets=data.targets, mask=mask, batch_size=8))
    ids = np.random.default_rng(1).integers(0, 3, 40)
    ids[::5] = -100
    classes = chain([Dense(in_features=4, out_features=3)], (4,))
    options: dict[str, Any] = {"network": classes, "loss": CrossEntropy()}
    assert_alike("gpu", data=ArrayData(inputs=data.inputs, targets=ids, batch_size=8), **options)
    assert_alike("gpu", data=ArrayData(inputs=data.inputs, targets=abs(ids) % 3, batch_size=8), **options)
    assert submitted == [3] * 9


def test_sequences_ids_and_statistics_are_picked_alike() -> None:
    draw = np.random.default_rng(2)
    words = chain(
        [
            Embedding(num_embeddings=9, embedding_dim=4),
            LSTM(input_size=4, hidden_size=5),
            Dense(in_features=5, out_features=9),
        ],
        (),
        input_dtype="int32",
    )
    ids = draw.integers(0, 9, (12, 4)).astype(np.int32)
    data = ArrayData(inputs=ids[:, :-1], targets=ids[:, 1:], batch_size=3)
    assert_alike("gpu", network=words, data=data, loss=CrossEntropy())
    normed = chain(
        [Dense(in_features=4, out_features=6), BatchNorm1d(num_features=6), Dense(in_features=6, out_features=1)], (4,)
    )
    assert_alike("gpu", network=normed)


def test_accumulated_updates_are_submitted_alone(submitted: list[int]) -> None:
    assert_alike("gpu", accumulate=2)
    assert not submitted


def test_checkpoints_and_the_last_update_end_a_submission(tmp_path: Path, submitted: list[int]) -> None:
    config = TrainConfig(epochs=2, steps_per_submission=4, checkpoint_every=2, max_steps=9, keep_checkpoints=9)
    train(ROWS, initialise(ROWS, seed=1), waves(40, 8), config, device=device("gpu"), checkpoints=tmp_path)
    assert submitted == [2, 2, 2]  # the fifth ends an epoch, the sixth precedes a checkpoint, the ninth is the last
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 6


def test_early_stopping_sees_every_epoch() -> None:
    data = waves(samples=40, batch_size=8)
    settings = {"epochs": 6, "patience": 1, "optimiser": SGD(lr=1.5)}
    one, several = (
        train(ROWS, initialise(ROWS, seed=1), data, TrainConfig(steps_per_submission=n, **settings),
              validation=0.2, device=device("gpu"))
        for n in (1, 4)
    )  # fmt: skip
    assert one.reason == several.reason == "patience"
    assert one.steps == several.steps
    assert one.history["validation_loss"] == several.history["validation_loss"]


def test_a_fault_leaves_the_weights_of_the_update_before_it() -> None:
    data = waves(samples=40, batch_size=8)
    inputs = data.features.copy()
    inputs[17] = np.inf
    odd = ArrayData(inputs=inputs, targets=data.targets, batch_size=8, shuffle=False)
    learner = learner_on(device("gpu"))(ROWS, initialise(ROWS, seed=1), LearnerOptions(optimiser=SGD()))
    other = learner_on(device("gpu"))(ROWS, initialise(ROWS, seed=1), LearnerOptions(optimiser=SGD()))
    assert isinstance(learner, SeriesLearner)
    reports = learner.steps(list(picked_batches(odd, 0)), rates=[0.1] * 5)
    want = [other.step([batch], rate=0.1) for batch, _ in zip(odd.batches(0), range(3), strict=False)]
    assert [(r.fault, r.gradient_norm) for r in reports[:2]] == [(r.fault, r.gradient_norm) for r in want[:2]]
    assert reports[2].fault == want[2].fault is not None
    assert len(reports) == 3
    assert learner.state.updates == other.state.updates == 2
    for key, value in other.state.masters.items():
        np.testing.assert_array_equal(learner.state.masters[key], value)
    with pytest.raises(DivergedError, match=r"step 3.*inputs\[17, 0\]"):
        trained("gpu", 4, data=odd)


def test_a_wrong_batch_is_an_error_at_its_place() -> None:
    good = list(waves(40, 8).batches(0))
    bad = Batch(np.zeros((8, 3), np.float32), np.zeros((8, 1), np.float32))
    learner = learner_on(device("gpu"))(ROWS, initialise(ROWS, seed=1), LearnerOptions())
    assert isinstance(learner, SeriesLearner)
    assert len(learner.steps([good[0], good[1], bad, good[2]], rates=[0.1] * 4)) == 2
    with pytest.raises(ShapeError):
        learner.steps([bad, good[2]], rates=[0.1] * 2)


def test_the_data_may_change_after_a_run() -> None:
    data = waves(40, 8)
    inputs = data.features.copy()
    results: list[dict[str, Array]] = []
    learner = learner_on(device("gpu"))(ROWS, initialise(ROWS, seed=1), LearnerOptions())
    assert isinstance(learner, SeriesLearner)
    start = learner.state
    for factor in (1, 2, 1):
        changed = ArrayData(inputs=factor * inputs, targets=data.targets, batch_size=8)
        learner.restore(start)
        learner.steps(list(picked_batches(changed, 0)), rates=[0.1] * 5)
        results.append(dict(learner.state.masters))
    for key, value in results[0].items():
        np.testing.assert_array_equal(results[2][key], value)
        assert (results[1][key] != value).any()


@pytest.mark.parametrize("option", ["stop", "observers"])
def test_by_default_what_looks_between_updates_keeps_them_apart(
    option: str, submitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SubmissionPace, "steps", 4)
    data, params = waves(40, 8), initialise(ROWS, seed=1)
    train(ROWS, params, data, epochs=1, device=device("gpu"))
    assert submitted == [4]
    submitted.clear()
    more: dict[str, Any] = {"stop": lambda: False} if option == "stop" else {"observers": [LogObserver()]}
    train(ROWS, params, data, epochs=1, device=device("gpu"), **more)
    assert not submitted


def test_the_pace_follows_the_fastest_update() -> None:
    pace = SubmissionPace()
    assert pace.steps == 1
    for seconds, steps in ((1.0, 1), (0.004, 5), (0.1, 5), (1e-6, MOST)):
        pace.record(seconds)
        assert pace.steps == steps


@pytest.mark.parametrize("steps", [0, -1])
def test_a_submission_has_an_update(steps: int) -> None:
    with pytest.raises(SpecError, match="steps_per_submission must be at least 1"):
        TrainConfig(steps_per_submission=steps)


@pytest.mark.parametrize("steps", [10**9, 2**70])
def test_a_stream_is_not_read_further_than_a_submission(steps: int) -> None:
    data, ahead, read = waves(samples=8, batch_size=8), 0, 0

    def batches(epoch: int) -> Iterator[Batch]:
        nonlocal read
        for _ in range(3 * MOST):
            read += 1
            yield from data.batches(0)

    def report(event: Event) -> None:
        nonlocal ahead
        if isinstance(event, StepEvent):
            ahead = max(ahead, read - event.step)

    config = TrainConfig(steps_per_submission=steps)
    result = train(ROWS, initialise(ROWS, seed=1), StreamData(batches), config, device="reference", reporters=[report])
    assert result.steps == 3 * MOST
    assert ahead == MOST - 1


@pytest.mark.parametrize("settings", [{"steps_per_submission": 3}, {"accumulate": 3}])
def test_a_stream_may_reuse_its_arrays(settings: dict[str, Any]) -> None:
    data = waves(samples=48, batch_size=8)

    def reused(epoch: int) -> Iterator[Batch]:
        inputs, targets = np.empty_like(data.features[:8]), np.empty_like(np.asarray(data.targets)[:8])
        for batch in data.batches(epoch):
            inputs[:], targets[:] = batch.features, batch.targets
            yield Batch(inputs, targets)

    streams = (StreamData(data.batches), StreamData(reused))
    config = TrainConfig(epochs=2, **settings)
    new, old = (train(ROWS, initialise(ROWS, seed=1), of, config, device="reference") for of in streams)
    assert new.history["loss"] == old.history["loss"]
    for key, store in new.params.items():
        np.testing.assert_array_equal(old.params[key].values(), store.values())
