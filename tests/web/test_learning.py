"""Networks that learn in a browser, against the learner on the reference device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import volumetric
from tests.program.test_stacked_weights import ring
from tests.web.engine_page import EnginePage
from volumetric.analysis.standardise import Standardisation
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.detect.load_state import load_state
from volumetric.layers import LSTM, Conv2d, Dense, Dropout, Flatten
from volumetric.network import Network, Params, initialise
from volumetric.train import (
    BCE,
    MSE,
    SGD,
    Adam,
    AdamW,
    Batch,
    CrossEntropy,
    LowRank,
    Momentum,
    TargetPropagation,
    TrainConfig,
    open_learner,
)
from volumetric.web.export_network import export_network
from volumetric.web.learner_network import LearnerNetwork, learner_of_actions
from volumetric.web.sources import recorded_kind

_UPDATES = 20
_LEARN = """
const m = await engine.load(net), l = await m.learner(), losses = [];
const width = x.length / updates, size = y.length / updates;
const part = (all, i) => all.subarray(i * all.length / updates, (i + 1) * all.length / updates);
for (let i = 0; i < updates; i++) losses.push(await l.update(part(x, i), part(y, i)));
const file = await l.safetensors(), weights = await l.weights(), after = (await m.run(part(x, 0))).output;
const updated = l.updates;
await l.reset();
const again = [await l.update(part(x, 0), part(y, 0)), l.updates];
await m.close();
return {losses, file, weights, after, updated, again};
"""


def _check(
    engine: EnginePage,
    network: Network,
    config: TrainConfig,
    x: NDArray[Any],
    y: NDArray[Any],
    steps: int | None = None,
) -> tuple[Params, NDArray[np.float32], NDArray[np.float32]]:
    """Learn in the page and on the reference device; return the page's weights, and outputs of both after it."""
    return _check_kind(engine, LearnerNetwork(network, initialise(network, seed=1), config, (x.shape[1],), steps), x, y)


def _check_kind(
    engine: EnginePage, kind: LearnerNetwork, x: NDArray[Any], y: NDArray[Any]
) -> tuple[Params, NDArray[np.float32], NDArray[np.float32]]:
    """Do what `_check` does, with a network that learns; `x` is not standardised."""
    network, params, config, steps = kind.network, kind.params, kind.config, kind.steps
    export_network(kind, engine.folder / "learner")
    got = engine.run(f"net += 'learner/'; {_LEARN}", x=x, y=y, updates=len(x))
    learner = open_learner("reference")(network, params, config.learner)
    x = x if kind.inputs is None else ((x - kind.inputs.mean) / kind.inputs.deviation).astype(np.float32)
    reports = [learner.step([Batch(*pair)], rate=config.optimiser.lr) for pair in zip(x, y, strict=True)]
    losses = [config.losses.value(report.tally) for report in reports]
    np.testing.assert_allclose(got["losses"], losses, rtol=1e-5, atol=1e-6)
    assert got["losses"][0] != pytest.approx(got["losses"][-1])
    file = engine.folder / "learnt.safetensors"
    file.write_bytes(got["file"].tobytes())
    loaded = load_state(network, file)
    assert (got["updated"], got["again"][1]) == (len(x), 1)
    assert got["again"][0] == got["losses"][0]
    for key, store in learner.state.masters.items():
        np.testing.assert_allclose(loaded[key].values(), store, rtol=1e-5, atol=1e-5, err_msg=key)
        assert (got["weights"][key]["data"] == loaded[key].values().ravel()).all()
        assert got["weights"][key]["shape"] == list(store.shape)
    rows = x[0] if steps is None else x[0][0]
    device = volumetric.open_device("reference")
    outputs = device.compile(volumetric.run.lower(network), loaded)
    expected = outputs.forward(outputs.new_state(), rows, last_only=False)
    return loaded, got["after"], expected


def test_updates_of_a_perceptron_equal_those_of_the_learner(engine: EnginePage) -> None:
    rng = np.random.default_rng(0)
    network = volumetric.sequential(2, 8, 1, activation="tanh")
    x = rng.standard_normal((_UPDATES, 4, 2)).astype(np.float32)
    y = (x[..., :1] * x[..., 1:]).astype(np.float32)
    _, got, expected = _check(engine, network, TrainConfig(loss=MSE(), optimiser=Adam(lr=0.05)), x, y)
    np.testing.assert_allclose(got, expected.ravel(), rtol=1e-5, atol=1e-5)


def test_updates_of_a_player_of_cartpole_equal_those_of_the_learner(engine: EnginePage) -> None:
    """The network that `--environment CartPole-v1 --learn` writes, without classes of its own."""
    network, rng = volumetric.sequential(4, 16, 2, activation="tanh"), np.random.default_rng(0)
    own = recorded_kind(network, params=initialise(network, seed=1), rows=(1, 64), learn=True)
    assert isinstance(own, LearnerNetwork)
    assert isinstance(own.config.losses.of["output"], MSE)
    kind = learner_of_actions(own, ("left", "right"))
    x = rng.standard_normal((_UPDATES, 16, 4)).astype(np.float32)
    y = (x @ [0.1, 0.5, 1.0, 1.0] > 0).astype(np.int32)
    _, got, expected = _check_kind(engine, kind, x, y)
    np.testing.assert_allclose(got, expected.ravel(), rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_updates_of_standardised_numbers_equal_those_of_the_learner(engine: EnginePage) -> None:
    """A visitor's numbers are what the network was trained on, before they were standardised."""
    network, rng = volumetric.sequential(3, 8, 2, activation="tanh"), np.random.default_rng(0)
    scaling = Standardisation(mean=(4.0, -2.0, 0.0), deviation=(2.0, 0.5, 10.0))
    kind = LearnerNetwork(
        network, initialise(network, seed=1), TrainConfig(loss=MSE(), optimiser=Adam(lr=0.01)), (8,), inputs=scaling,
        features=("a", "b", "c"), rows=(1, 64),
    )  # fmt: skip
    x = (rng.standard_normal((_UPDATES, 8, 3)) * scaling.deviation + scaling.mean).astype(np.float32)
    _, got, expected = _check_kind(engine, kind, x, np.sin(x[..., :2]))
    np.testing.assert_allclose(got, expected.ravel(), rtol=1e-5, atol=1e-5)
    ports = json.loads((engine.folder / "learner" / "network.json").read_text(encoding="utf-8"))
    assert ports["inputs"]["input"]["names"] == ["a", "b", "c"]
    assert [one["rows"] for one in ports["calls"]["programs"]] == [1, 8, 64]


def _digits(rng: np.random.Generator, batch: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    x = rng.standard_normal((_UPDATES, batch, 1, 8, 8)).astype(np.float32)
    return x, rng.integers(0, 10, (_UPDATES, batch)).astype(np.int32)


@pytest.mark.thorough
def test_updates_of_a_convolution_equal_those_of_the_learner(engine: EnginePage) -> None:
    network = volumetric.sequential((1, 8, 8), Conv2d(1, 4, 3, activation="relu"), Flatten(), 10)
    config = TrainConfig(loss=CrossEntropy(), optimiser=Momentum(lr=0.05), clip=1.0)
    _, got, expected = _check(engine, network, config, *_digits(np.random.default_rng(0), 4))
    np.testing.assert_allclose(got, expected.ravel(), rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_updates_draw_the_random_numbers_of_the_learner(engine: EnginePage) -> None:
    network = volumetric.sequential(8, Dense(8, 16, "relu"), Dropout(0.5), 3)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((_UPDATES, 4, 8)).astype(np.float32)
    y = rng.integers(0, 3, (_UPDATES, 4)).astype(np.int32)
    config = TrainConfig(loss=CrossEntropy(label_smoothing=0.1), optimiser=AdamW(lr=0.01), seed=(7 << 32) + 5)
    _, got, expected = _check(engine, network, config, x, y)
    np.testing.assert_allclose(got, expected.ravel(), rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_updates_through_sequences_equal_those_of_the_learner(engine: EnginePage) -> None:
    network = volumetric.sequential(2, LSTM(2, 4), 1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((_UPDATES, 2, 5, 2)).astype(np.float32)
    y = (np.cumsum(x[..., :1], axis=2) > 0).astype(np.float32)
    config = TrainConfig(loss=BCE(), optimiser=SGD(lr=0.5))
    _, got, expected = _check(engine, network, config, x, y, steps=5)
    np.testing.assert_allclose(got[: expected.size], expected.ravel(), rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_weights_that_are_stored_stacked_come_back(engine: EnginePage) -> None:
    """The matrices of a program lie side by side."""
    network, rng = ring(2), np.random.default_rng(0)
    x = rng.standard_normal((4, 2, 2, 3)).astype(np.float32)
    y = rng.standard_normal((4, 2, 2, 2)).astype(np.float32)
    _, got, expected = _check(engine, network, TrainConfig(loss=MSE(), optimiser=SGD(lr=0.1)), x, y, steps=2)
    np.testing.assert_allclose(got[: expected.size], expected.ravel(), rtol=1e-5, atol=1e-5)
    manifest = json.loads((engine.folder / "learner" / "network.json").read_text(encoding="utf-8"))
    places = [entry for entry in manifest["learner"]["weights"].values() if entry["buffer"].startswith("stack/")]
    assert len(places) > len({entry["buffer"] for entry in places}) > 0


@pytest.mark.thorough
def test_what_an_update_does_not_take_is_refused(engine: EnginePage) -> None:
    network = volumetric.sequential(2, 3)
    config = TrainConfig(loss=CrossEntropy(), optimiser=SGD(lr=0.5))
    export_network(LearnerNetwork(network, initialise(network, seed=1), config, (2,)), engine.folder / "learner")
    got = engine.run(
        """
        const m = await engine.load(net + "learner/"), l = await m.learner(), refusals = [];
        const before = (await l.weights())["0.0.0.0/weight"].data;
        for (const [x, y, options] of [
          [[1, 2], [0]], [[1, 2, 3, 4], [0]], [[1, 2, 3], [0, 1]], [[1, 2, 3, 4], [0, 3]], [[1, 2, 3, 4], undefined],
          [[1, 2, 3, 4], [0, 1], {rate: Infinity}],
        ]) await l.update(x, y, options).then(() => refusals.push("none"), error => refusals.push(error.message));
        const after = (await l.weights())["0.0.0.0/weight"].data;
        const losses = [await l.update([1, 2, 3, 4], [0, 1]), await l.update([1, 2, 3, 4], [0, 1])];
        const rows = await m.run([1, 2, 3, 4, 5, 6]);
        await m.close();
        return {refusals, before, after, losses, rows: rows.output, batches: l.batches};
        """
    )
    assert (got["before"] == got["after"]).all()
    assert got["losses"][1] < got["losses"][0]
    assert (got["rows"].size, got["batches"]) == (9, [2])
    said = (
        "takes 2 samples",
        "2 samples and 1 targets",
        "a row has 2",
        "0 to 2",
        "targets of output is missing",
        "no weight has changed",
    )
    for refusal, part in zip(got["refusals"], said, strict=True):
        assert part in refusal


def test_configurations_that_no_page_can_follow_are_refused() -> None:
    network = volumetric.sequential(2, 3)
    params = initialise(network, seed=1)
    with pytest.raises(SpecError, match="1 or more"):
        LearnerNetwork(network, params, TrainConfig(), (0,))
    for config in (TrainConfig(accumulate=2), TrainConfig(overlay=LowRank())):
        with pytest.raises(UnsupportedError, match="one batch"):
            LearnerNetwork(network, params, config)


def test_a_mode_without_one_program_is_refused(tmp_path: Path) -> None:
    network = volumetric.sequential(2, 8, 3)
    kind = LearnerNetwork(network, initialise(network, seed=1), TrainConfig(mode=TargetPropagation()))
    with pytest.raises(UnsupportedError, match="does not learn in a page"):
        export_network(kind, tmp_path / "learner")
