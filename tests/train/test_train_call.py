"""`train` of samples and keywords, and what its result can do."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import volumetric
import volumetric.train as package
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError, VolumetricError
from volumetric.base.progress_line import ProgressLine, is_watched
from volumetric.base.sparkline import sparkline, sparkline_svg
from volumetric.builders import sequential
from volumetric.clocked import Clocked
from volumetric.layers import LSTM, Dense, Embedding, LastStep
from volumetric.network import Network, initialise
from volumetric.train import MSE, SGD, Adam, ArrayData, Cosine, EpochEvent, Linear, TrainConfig, TrainResult, train
from volumetric.train.train_settings import OF_BATCHES, OF_OPTIMISER, TrainSettings, config_of
from volumetric.train.training_events import EpochLine

X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
Y = np.array([[0], [1], [1], [0]], np.float32)
NET = sequential(2, 1, hidden=(8,), activation="tanh")
IDS = Network(layers=[Embedding(num_embeddings=5, embedding_dim=4), Dense(in_features=4, out_features=3)])


def weights(result: TrainResult) -> list[np.ndarray]:
    return [store.values() for store in result.params.values()]


def same(a: TrainResult, b: TrainResult) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(weights(a), weights(b), strict=True))


def test_keywords_are_the_configuration() -> None:
    config = TrainConfig(loss="mse", optimiser=Adam(lr=0.05), epochs=5, clip=1.0, seed=3)
    data = ArrayData(inputs=X, targets=Y, batch_size=2, seed=3)
    whole = train(NET, initialise(NET, 3), data, config)
    named = train(NET, X, Y, loss="mse", optimiser="adam", lr=0.05, epochs=5, clip=1.0, seed=3, batch_size=2)
    assert same(whole, named)
    assert whole.history == named.history
    over = train(NET, X, Y, dataclasses.replace(config, epochs=1, clip=9.0), epochs=5, clip=1.0, batch_size=2)
    assert same(whole, over)


def test_every_setting_is_a_keyword() -> None:
    fields = {f.name for f in dataclasses.fields(TrainConfig)}
    assert set(get_type_hints(TrainSettings)) == fields - {"dtype"} | {*OF_OPTIMISER, *OF_BATCHES}  # dtype: of `train`


def test_weights_may_be_passed_by_name() -> None:
    params = initialise(NET, 5)
    by_name = train(NET, X, Y, params=params, epochs=2)
    assert same(by_name, train(NET, params, (X, Y), epochs=2))
    assert not same(by_name, train(NET, X, Y, epochs=2))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X.tolist(), Y[:, 0].tolist()),
        (X.astype(bool), Y.astype(bool)),
        (X.astype(np.float64), Y[:, 0].astype(np.uint8)),
        (X.astype(object), Y.astype(np.int64)),
        (X.astype(np.float16), Y[:, 0].astype(object)),
    ],
    ids=["lists", "bool", "float64", "objects", "float16"],
)
def test_arrays_of_any_numbers_are_the_same_samples(x: Any, y: Any) -> None:
    assert same(train(NET, x, y, epochs=2), train(NET, X, Y, epochs=2))


def test_ids_may_be_floats_or_a_column_and_no_fraction_is_cut() -> None:
    ids, y = np.arange(5), np.arange(5) % 3
    plain = train(IDS, ids, y, loss="cross_entropy", epochs=2)
    assert same(plain, train(IDS, ids * 1.0, y[:, None], loss="cross_entropy", epochs=2))
    column = train(IDS, ids[:, None], y, loss="cross_entropy", epochs=2)  # sequences of one row
    assert column.history[-1].loss == pytest.approx(plain.history[-1].loss, rel=1e-6)
    with pytest.raises(VolumetricError, match="reads int32"):
        train(IDS, ids + 0.5, y, loss="cross_entropy")


def test_batches_of_a_function_are_fitted_too() -> None:
    config = TrainConfig(epochs=2)
    flat = train(NET, initialise(NET), lambda epoch: [(X, Y[:, 0])], config)
    assert same(flat, train(NET, initialise(NET), lambda epoch: [(X, Y)], config))


def test_a_schedule_without_steps_lasts_for_the_run() -> None:
    config = config_of(None, {"schedule": "cosine", "epochs": 3, "accumulate": 2}, 5)
    assert config.schedule == Cosine(steps=9)
    assert config_of(None, {"schedule": {"kind": "linear", "floor": 0.1}, "max_steps": 7}, 0).schedule == Linear(
        steps=7, floor=0.1
    )
    with pytest.raises(SpecError, match="steps must be given"):
        config_of(None, {"schedule": "cosine"}, 0)


def test_the_rate_belongs_to_the_optimiser_that_is_set() -> None:
    assert config_of(TrainConfig(optimiser=SGD(lr=1.0)), {"lr": 0.5}, 1).optimiser == SGD(lr=0.5)
    assert config_of(None, {"optimiser": Adam, "lr": 0.5, "weight_decay": 0.1}, 1).optimiser == Adam(
        lr=0.5, weight_decay=0.1
    )


def test_the_package_is_the_function() -> None:
    assert same(volumetric.train(NET, X, Y, epochs=2), package.train(NET, X, Y, epochs=2))  # pyright: ignore
    assert volumetric.train.TrainConfig is TrainConfig
    assert volumetric.train.MSE is MSE


def test_a_result_predicts_and_is_saved(tmp_path: Path) -> None:
    result = train(NET, X, Y, epochs=200, lr=0.05, optimiser="adam")
    assert np.abs(result.predict(X.tolist()) - Y).max() < 0.1
    result.save(tmp_path / "xor")
    result.save(tmp_path / "xor")  # replaces the first one
    model = volumetric.load(tmp_path / "xor", device="reference")
    np.testing.assert_allclose(model.predict(X), result(X), atol=1e-6)


def test_what_validates_best_is_predicted_with_and_saved() -> None:
    result = train(NET, X, Y, epochs=6, lr=3.0, optimiser="sgd", validation=(X, Y))
    best = min(result.history["validation_loss"])
    assert ((result.predict(X) - Y) ** 2).mean() == pytest.approx(best, rel=1e-4)
    assert best < result.history[-1].validation_loss


def test_a_result_shows_itself() -> None:
    result = train(NET, X, Y, epochs=4, validation=(X, Y), accuracy=True)
    text = repr(result)
    assert f"{result.loss:.6g}" in text
    assert all(word in text for word in ("validation loss", "accuracy", "updates", "ended by"))
    assert result._repr_html_().count("<tr>") == len(result._rows()) + 1
    assert result.history["loss"] == [event.loss for event in result.history]
    assert isinstance(result.history[0], EpochEvent)
    with pytest.raises(SpecError, match="no 'los'") as caught:
        result.history["los"]
    assert "'loss'" in str(caught.value.hint)


def test_a_sparkline_is_high_where_values_are() -> None:
    assert sparkline([0, 1, 2, 3]) == "▁▃▆█"
    assert sparkline([1, 100, 10000.5]) == "▁▄█"  # by logarithm
    assert sparkline([2, float("nan"), 2]) == "▁ ▁"
    assert len(sparkline(list(range(1000)), 40)) == 40
    assert sparkline_svg([1, 0]).count(",") == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    train(NET, X, Y, epochs=3)
    shown = terminal.getvalue()
    assert shown.count("\n") == 1
    assert shown.split("\r")[1].startswith("epoch 1/3  loss ")
    assert "epoch 3/3  loss " in shown.split("\r")[-1]
    options: list[dict[str, Any]] = [{"progress": False}, {"verbose": 0}, {"reporters": [lambda event: None]}]
    for quiet in options:
        monkeypatch.setattr("sys.stderr", terminal := _Terminal())
        train(NET, X, Y, **quiet)
        assert not terminal.getvalue()


def test_nothing_is_shown_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    train(NET, X, Y)
    assert capsys.readouterr() == ("", "")
    train(NET, X, Y, progress=True)
    assert capsys.readouterr().err.endswith("\n")


def test_a_notebook_is_watched() -> None:
    stream = type("OutStream", (), {"__module__": "ipykernel.iostream"})()
    assert is_watched(stream)
    assert not is_watched(io.StringIO())


def test_a_shorter_line_covers_a_longer_one() -> None:
    stream = io.StringIO()
    line = ProgressLine(str, stream)
    line.report("a long line")
    line.report("short")
    line.close()
    first, last = stream.getvalue().split("\r")[1:]
    assert len(last.rstrip("\n")) >= len(first)
    assert EpochLine(3)(EpochEvent(step=1, epoch=2, loss=0.5, accuracy=0.25)) == "epoch 3/3  loss 0.5  accuracy 25.0%"


@pytest.mark.parametrize("name", ["net.onnx", "net.npz", "net.safetensors", "net.py", "net.c"])
def test_a_suffix_names_the_format(name: str, tmp_path: Path) -> None:
    result = train(NET, X, Y)
    result.save(tmp_path / name)
    assert (tmp_path / name).is_file()
    for wrong in ("net.pt", "net.h5"):
        with pytest.raises(UnsupportedError, match="cannot be written"):
            result.save(tmp_path / wrong)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_results_and_networks_are_copied_and_pickled() -> None:
    result = train(NET, X, Y)
    again = pickle.loads(pickle.dumps(result))
    assert again.network == NET == copy.deepcopy(NET)
    assert (again.predict(X) == result.predict(X)).all()
    machine = Clocked(NET, clocks={"0.0.0.0": "every(2)"})
    assert pickle.loads(pickle.dumps(machine)) == copy.deepcopy(machine) == machine


def test_a_history_is_shown_as_a_table() -> None:
    lines = repr(train(NET, X, Y, epochs=30, device="reference").history).splitlines()
    assert lines[0].split() == ["epoch", "loss"]
    assert len(lines) == 22
    assert lines[11] == "… 10 more …"


def test_a_function_of_batches_needs_no_parameter() -> None:
    result = train(NET, lambda: iter([(X, Y)]), epochs=2, device="reference")
    assert result.steps == 2


def test_types_of_numpy_are_types() -> None:
    params = train(NET, X, Y, dtype=np.float16, device="reference").params
    assert params["0.0.0.0/weight"].dtype == "float16"


def test_no_samples_are_said_to_be_none() -> None:
    with pytest.raises(ShapeError, match="there are no samples"):
        train(NET, X[:0], Y[:0])


def test_one_target_for_each_sequence_needs_whole_sequences() -> None:
    network = volumetric.sequential(2, LSTM(2, 3), 1)
    x = np.ones((4, 6, 2), np.float32)
    with pytest.raises(ShapeError) as caught:
        train(network, x, x[:, 0, 0], device="reference")
    assert "sequential((6, features)" in (caught.value.hint or "")
    whole = volumetric.sequential((6, 2), LSTM(2, 3), LastStep(), 1)
    assert train(whole, x, x[:, 0, 0], device="reference").predict(x).shape == (4, 1)
