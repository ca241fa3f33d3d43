"""What reporters read at the end of epochs: weights, a few samples, and when observers want statistics."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.scope.training_runs import SPIRALS, problem, train_digits, train_spirals, write_run
from volumetric.base.errors import SpecError
from volumetric.network.weight_store import Params, WeightStore
from volumetric.train import ArrayData
from volumetric.train.epoch_end import EpochEnd
from volumetric.train.precision import master_of
from volumetric.train.sample_probe import SampleProbe
from volumetric.train.settings import settings_from
from volumetric.train.weight_statistics import BINS, WeightStatistics


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Reader:
    """Asks for everything at the end of every epoch."""

    def __init__(self) -> None:
        self.states: list[EpochEnd] = []
        self.params: list[Params] = []

    def start(self, step: int, epoch: int) -> None:
        pass

    def report(self, event: object, /) -> None:
        pass

    def close(self) -> None:
        pass

    def end_epoch(self, state: EpochEnd) -> None:
        self.states.append(state)
        self.params.append(state.params())


def test_reporters_read_weights_and_outputs_at_the_end_of_epochs():
    reader = Reader()
    result = train_spirals(reporters=[reader], validation=None)
    assert [state.epoch for state in reader.states] == [0, 1, 2, 3]
    assert [state.last for state in reader.states] == [False, False, False, True]
    assert not reader.states[0].held_out
    for key, store in result.params.items():
        np.testing.assert_array_equal(master_of(reader.params[-1][key]), master_of(store))
        assert not np.array_equal(master_of(reader.params[0][key]), master_of(store))


def test_reading_changes_no_bit_of_a_run():
    watched, plain = train_spirals(reporters=[Reader()]), train_spirals()
    for key, store in plain.params.items():
        np.testing.assert_array_equal(store.values(), watched.params[key].values())


def test_statistics_of_weights():
    w = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
    statistics = WeightStatistics()
    [first] = statistics.of(Params({"a": WeightStore.from_array(w)}))
    [second] = statistics.of(Params({"a": WeightStore.from_array(w + 1)}))
    assert first.change is None
    assert first.norm == pytest.approx(np.linalg.norm(w))
    assert second.change == pytest.approx(np.sqrt(8))
    assert (first.low, first.high) == (-4, 3)
    assert sum(first.counts) == 8
    assert len(first.counts) == BINS
    np.testing.assert_array_equal(first.counts, np.histogram(w, BINS)[0])
    w[0, 0] = np.nan
    [odd] = WeightStatistics().of(Params({"a": WeightStore.from_array(w)}))
    assert odd.odd == 1
    assert sum(odd.counts) == 7
    assert odd.describe()["norm"] == "nan"


def test_files_hold_weights_and_predictions_of_every_epoch(tmp_path):
    write_run(tmp_path)
    weights, [samples, *predictions] = lines_of(tmp_path / "weights.jsonl"), lines_of(tmp_path / "samples.jsonl")
    assert [line["epoch"] for line in weights] == [line["epoch"] for line in predictions] == [0, 1, 2, 3]
    assert [one["key"] for one in weights[0]["arrays"]][:2] == ["0.0.0.0/weight", "0.0.0.0/bias"]
    assert weights[0]["arrays"][0]["change"] is None
    assert weights[1]["arrays"][0]["change"] > 0
    assert samples["classed"]
    assert len(samples["inputs"]) == len(samples["targets"]) == 12
    confusion = np.array(predictions[-1]["confusion"])
    assert confusion.shape == (3, 3)
    assert confusion.sum() == predictions[-1]["judged"] == 30  # a quarter of 120
    accuracy = lines_of(tmp_path / "history.jsonl")[-2]["accuracy"]
    assert np.trace(confusion) / 30 == pytest.approx(accuracy)
    np.testing.assert_allclose(np.sum(predictions[-1]["outputs"], 1), 1, atol=1e-5)
    np.testing.assert_array_equal(np.argmax(predictions[-1]["outputs"], 1), predictions[-1]["predictions"])


def test_a_resumed_run_continues_its_files(tmp_path):
    whole, parts = write_run(tmp_path / "whole"), write_run(tmp_path / "parts", max_steps=7)
    write_run(parts, resume=True)
    for name in ("weights.jsonl", "samples.jsonl"):
        a, b = lines_of(whole / name), lines_of(parts / name)
        assert [(line["event"], line.get("epoch")) for line in a] == [(line["event"], line.get("epoch")) for line in b]


def test_values_and_single_logits_are_samples_too():
    x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2)
    data = ArrayData(inputs=x, targets=x[:, :1], shuffle=False)
    reader = Reader()
    from volumetric.builders import sequential
    from volumetric.train import train

    train(sequential(2, 1), data=data, loss="mse", device="reference", reporters=[reader])
    probe = SampleProbe(5)
    predictions = probe.read(reader.states[0])
    assert probe.samples is not None
    assert predictions is not None
    assert not probe.samples.classed
    assert predictions.predictions.shape == (5, 1)
    assert predictions.confusion is None
    classes = (x[:, :1] > 0).astype(np.float32)
    train(sequential(2, 1), x, classes, loss="bce", lr=0.5, epochs=20, device="reference", reporters=[reader])
    predictions = (probe := SampleProbe(20)).read(reader.states[-1])
    assert predictions is not None
    assert probe.samples is not None
    np.testing.assert_array_equal(np.sort(probe.samples.targets), np.sort(classes[:, 0]))
    assert predictions.confusion is not None
    assert np.trace(predictions.confusion) == 20


@pytest.mark.thorough
def test_pictures_are_stored_as_they_are():
    reader = Reader()
    train_digits(reporters=[reader])
    probe = SampleProbe()
    predictions = probe.read(reader.states[-1])
    assert probe.samples is not None
    assert predictions is not None
    assert probe.samples.inputs.shape == (24, 1, 8, 8)
    assert predictions.confusion is not None
    assert predictions.confusion.shape == (10, 10)


class Sometimes:
    """Wants every third update."""

    def __init__(self) -> None:
        self.steps: set[int] = set()

    def wants(self, step: int) -> bool:
        return step % 3 == 0

    def observe(self, event) -> None:
        self.steps.add(event.step)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("together", [1, 8])
def test_statistics_are_computed_only_for_updates_that_an_observer_wants(together):
    observer, losses = Sometimes(), []
    more = {"steps_per_submission": together, "validation": None, "shuffle": True}
    result = train_spirals(
        observers=[observer], reporters=[lambda event: event.event == "step" and losses.append(event.loss)], **more
    )
    assert observer.steps == set(range(3, result.steps + 1, 3))
    plain: list[float] = []
    train_spirals(reporters=[lambda event: event.event == "step" and plain.append(event.loss)], **more)
    assert losses == plain


def test_settings_of_a_file():
    assert settings_from({"history": {"weights": True, "samples": 3}}).history.samples == 3
    with pytest.raises(SpecError, match="samples must be in 0 … 24, got 25"):
        settings_from({"history": {"samples": 25}})
    with pytest.raises(SpecError, match="samples must be in 1 … 24"):
        SampleProbe(0)
    assert SPIRALS.shapes
    assert len(problem().inputs) == 120
