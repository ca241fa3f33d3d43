"""Model.predict: what a network that reads features gives for many samples, on every device, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.devices import DEVICES, device
from volumetric.analysis import Standardisation, predict
from volumetric.analysis.predict import predict_on
from volumetric.base.errors import GenerationError, ShapeError, SpecError
from volumetric.builders import chain, cnn, sequential
from volumetric.layers import RNN, Dense
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.native_checkpoint import NativeFacts, save_native
from volumetric.network import Network, Params, initialise

predicting = sys.modules["volumetric.analysis.predict"]
"""The module, whose name its function has, too."""
LLAMA = Path(__file__).parents[1] / "fixtures" / "hf_tiny" / "llama"
DENSE = sequential(3, 2, hidden=(5,), activation="tanh")
SEQUENCES = chain([RNN(input_size=2, hidden_size=4), Dense(in_features=4, out_features=1)], (2,))
IMAGES = cnn((1, 6, 6), 3)
X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


@pytest.fixture
def opened(tmp_path):
    def call(network: Network, name: str = "cpu", facts: NativeFacts | None = None, **options) -> volumetric.Model:
        save_native(tmp_path / "m", network, initialise(network, 1), facts=facts)
        return volumetric.load(tmp_path / "m", device=device(name), **options)

    return call


def computed(executable: Any, model: volumetric.Model, x: np.ndarray) -> np.ndarray:
    """What `model` puts out for samples, computed by an executable."""
    found = predict_on(executable, model.plan, x)
    assert isinstance(found, np.ndarray)
    return found


def expected(network: Network, x: np.ndarray) -> np.ndarray:
    return predict(network, initialise(network, 1), x)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_rows_are_strangers_in_batches_of_any_size(opened, name):
    with opened(DENSE, name) as model:
        y = model.predict(X)
        assert (y.shape, y.dtype) == ((7, 2), np.float32)
        np.testing.assert_allclose(y, expected(DENSE, X), atol=1e-5)
        np.testing.assert_allclose(model.predict(X[::-1], batch_size=2), y[::-1], atol=1e-5)
        np.testing.assert_allclose(model.predict(X.astype(np.float64)[:1].tolist()), y[:1], atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_sequences_are_strangers_and_rows_without_samples_are_one(opened, name):
    x = np.random.default_rng(1).normal(size=(3, 4, 2)).astype(np.float32)
    with opened(SEQUENCES, name) as model:
        y = model.predict(x)
        assert y.shape == (3, 4, 1)
        np.testing.assert_allclose(model.predict(x[::-1])[::-1], y, atol=1e-6)
        np.testing.assert_allclose(model.predict(x[1], batch_size=2), y[1], atol=1e-6)


class Counting:
    """An executable, and how many pieces its calls had."""

    def __init__(self, executable):
        self.options, self.memory, self.new_state = executable.options, executable.memory, executable.new_state
        self.executable, self.calls = executable, []

    def run(self, pieces):
        self.calls.append(len(pieces))
        return self.executable.run(pieces)


@pytest.mark.parametrize(
    ("limit", "value", "calls"),
    [
        (None, None, [16, 16, 3]),
        ("_TOGETHER_ROWS", 4 * 9 + 3, [9, 9, 9, 8]),
        ("_TOGETHER_BYTES", 0, [1] * 35),
    ],
    ids=["sequences", "rows", "bytes"],
)
def test_sequences_share_calls_and_have_the_bits_that_each_has_alone(opened, monkeypatch, limit, value, calls):
    x = np.random.default_rng(3).normal(size=(35, 4, 2)).astype(np.float32)
    with opened(SEQUENCES) as model:
        alone = np.concatenate([computed(model.executable, model, one[None]) for one in x])
        if limit:
            monkeypatch.setattr(predicting, limit, value)
        counting = Counting(model.executable)
        np.testing.assert_array_equal(computed(counting, model, x), alone)
        assert counting.calls == calls


@pytest.mark.thorough
def test_long_recurrent_sequences_share_calls(opened):
    x = np.random.default_rng(4).normal(size=(3, 300, 2)).astype(np.float32)
    with opened(SEQUENCES) as model:
        counting = Counting(model.executable)
        together = computed(counting, model, x)
        assert counting.calls == [3]
        np.testing.assert_array_equal(together[::-1], computed(model.executable, model, x[::-1]))


def test_images_may_come_flat_and_features_whole_numbers(opened):
    x = np.random.default_rng(2).integers(0, 3, (4, 1, 6, 6))
    with opened(IMAGES) as model:
        y = model.predict(x)
        np.testing.assert_array_equal(model.predict(x.reshape(4, 36)), y)
        np.testing.assert_allclose(y, expected(IMAGES, x.astype(np.float32)), atol=1e-5)


@pytest.mark.thorough
def test_integer_weights_predict_what_was_trained_with_nothing_rounded_on_the_way(opened):
    with opened(DENSE, dtype="int8") as model:
        np.testing.assert_allclose(model.predict(X), predict(model.network, model.params, X), atol=1e-6)
        assert model.info.options.compute == "float32"
    with opened(DENSE, dtype="int8", compute="int8") as rounding:
        assert rounding.info.options.compute == "int8"


def test_inputs_are_standardised_as_the_checkpoint_says(opened, tmp_path):
    facts = NativeFacts(inputs=Standardisation.of(np.array([[1.0, 5, 100], [3, 5, 300]])), classes=("no", "yes"))
    with opened(DENSE, facts=facts) as model:
        assert model.classes == ("no", "yes")
        raw = X * [1, 1, 100] + [2, 5, 200]
        np.testing.assert_allclose(model.predict(raw), expected(DENSE, X), atol=1e-5)
        with pytest.raises(ShapeError, match="trained on 3 features"):
            model.predict(X[:, :2])
    convert_model(tmp_path / "m", tmp_path / "half", dtype="f16")
    with volumetric.load(tmp_path / "half", device="cpu") as half:
        assert (half.loaded.inputs, half.classes) == (facts.inputs, facts.classes)
    with volumetric.load(tmp_path / "m", device="cpu") as model:
        convert_model(tmp_path / "m", tmp_path / "m.json")
        np.testing.assert_allclose(
            volumetric.load(tmp_path / "m.json", device="cpu").predict(raw), model.predict(raw), atol=1e-5
        )


def test_a_constant_feature_is_centred_and_not_divided():
    made = Standardisation.of(np.full((3, 1), 0.1))
    np.testing.assert_allclose(made.apply(np.array([[0.1], [1.1]])), [[0], [1]], atol=1e-12)
    for wrong in (np.zeros((2, 2, 2)), np.zeros((0, 2)), np.zeros((2, 2), int)):
        with pytest.raises(ShapeError):
            Standardisation.of(wrong)
    with pytest.raises(SpecError):
        Standardisation(mean=(0.0,), deviation=(0.0,))


@pytest.mark.parametrize(
    ("x", "message", "hint"),
    [
        (X[0], r"reads \[samples, 3\], or sequences \[samples, T, 3\], got shape \(3,\)", "x[None]"),
        (X[:0], "without samples", "at least one"),
        (X[:, :2], r"got shape \(7, 2\)", "shape"),
        ("abc", "must be numbers", ""),
        (None, "must be numbers", ""),
        ([[1.0, 2.0], [3.0]], "different shapes", "each length"),
    ],
    ids=["one sample", "none", "features", "text", "nothing", "ragged"],
)
def test_what_the_network_does_not_read_is_named(opened, x, message, hint):
    with opened(DENSE) as model, pytest.raises(ShapeError, match=message) as caught:
        model.predict(x)
    assert hint in (caught.value.hint or "")


def test_a_sequence_longer_than_the_context_says_how_to_open_the_model(opened):
    with opened(SEQUENCES, context=3) as model, pytest.raises(ShapeError, match="has 4 rows") as caught:
        model.predict(np.zeros((2, 4, 2), np.float32))
    assert "context=4" in (caught.value.hint or "")


def test_what_is_for_tokens_points_to_predict(opened):
    with opened(DENSE) as model:
        for call in (model.logits, model.generate, model.stream, model.perplexity, lambda _: model.session()):
            with pytest.raises(GenerationError, match=r"reads float32 \[samples, 3\], not tokens") as caught:
                call(X)
            assert caught.value.hint == "use model.predict(inputs), or volumetric run MODEL --in FILE"


def test_a_language_model_predicts_the_logits_of_several_texts():
    ids = np.arange(12).reshape(2, 6)
    with volumetric.load(LLAMA, device="reference") as model:
        np.testing.assert_allclose(model.predict(ids)[1], model.logits(ids[1]), atol=1e-6)


def test_the_champion_of_an_evolution_predicts(tmp_path):
    from volumetric.evolution import EvolutionConfig, Population

    genome = Population(EvolutionConfig(), seed=1).genomes[0]
    network, params = genome.to_network()
    assert isinstance(params, Params)
    save_native(tmp_path / "champion", network, params)
    x = np.random.default_rng(0).normal(size=(5, 2))
    with volumetric.load(tmp_path / "champion", device="cpu") as model:
        np.testing.assert_allclose(model.predict(x), genome.activate(x), rtol=1e-5, atol=1e-5)
