"""Low-rank overlays: only the factors learn, their gradients are right, merging is what the forward pass used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.learners import reference_learner
from tests.networks import tiny_llama
from tests.train.problems import perceptron, waves
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.network import Network, Params, initialise
from volumetric.train import (
    SGD,
    AdamW,
    ArrayData,
    CrossEntropy,
    LowRank,
    TrainConfig,
    load_overlays,
    save_overlays,
    token_windows,
    train,
)
from volumetric.train.precision import trained_store

OVERLAY = LowRank(rank=2, alpha=6.0, targets=("*/weight",))


def learned(params: Params, overlay: LowRank = OVERLAY, **settings: object) -> tuple[Network, object]:
    network = perceptron(4, 9, 1)
    config = TrainConfig(optimiser=AdamW(lr=0.02), epochs=20, overlay=overlay, **settings)  # pyright: ignore[reportArgumentType]
    return network, train(network, params, waves(), config)


def test_only_the_factors_learn_and_the_result_has_them_merged() -> None:
    network = perceptron(4, 9, 1)
    params = initialise(network)
    result = train(network, params, waves(), TrainConfig(optimiser=AdamW(lr=0.02), epochs=20, overlay=OVERLAY))
    assert result.history[-1].loss < 0.5 * result.history[0].loss
    assert sorted(result.overlays) == [f"{z}.0.0.0/weight:{f}" for z in (0, 1) for f in "ab"]
    assert result.params["0.0.0.0/bias"] is params["0.0.0.0/bias"]
    for key in ("0.0.0.0/weight", "1.0.0.0/weight"):
        change = result.params[key].values() - params[key].values()
        assert 1 <= np.linalg.matrix_rank(change, tol=1e-5) <= 2
        np.testing.assert_allclose(change, OVERLAY.delta(key, result.overlays), atol=1e-6)
        np.testing.assert_array_equal(OVERLAY.merge(params, result.overlays)[key].values(), result.params[key].values())


def test_gradients_of_the_factors_are_those_of_finite_differences() -> None:
    network = perceptron(4, 5, 1)
    params = initialise(network)
    batch = next(waves(8, 8).batches(0))
    options = TrainConfig(optimiser=SGD(lr=1.0), overlay=OVERLAY).learner
    learner = reference_learner(network, params, options, np.float64)
    state = learner.state
    start = {k: np.random.default_rng(5).normal(size=w.shape) * 0.3 for k, w in state.masters.items()}
    rate = 1e-3

    def loss(masters: dict[str, np.ndarray]) -> float:
        learner.restore(type(state)(0, masters, {}))
        tally = learner.evaluate(batch)
        return tally.total / tally.count

    expected = {}
    for key, w in start.items():
        at = tuple(np.unravel_index(w.size // 2, w.shape))
        up, down = w.copy(), w.copy()
        up[at] += 1e-5
        down[at] -= 1e-5
        expected[key] = at, (loss(start | {key: up}) - loss(start | {key: down})) / 2e-5
    learner.restore(type(state)(0, start, {}))
    learner.step([batch], rate=rate)
    for key, (at, slope) in expected.items():
        assert (start[key][at] - learner.state.masters[key][at]) / rate == pytest.approx(slope, rel=1e-5)


def test_training_starts_from_the_weights_and_int4_ones_stay_what_they_are() -> None:
    network = tiny_llama()
    params = Params({k: trained_store(s.values(), s.scheme) for k, s in initialise(network).items()})
    for key, spec in network.param_specs().items():
        if spec.packable:
            params[key].drop_master()
            params[key].morph(type(params[key].scheme).parse("int4:g32"))
    before = {key: store.values() for key, store in params.items()}
    data = ArrayData(
        **dict(zip(("inputs", "targets"), token_windows(np.arange(80) % 97, 8), strict=True)), batch_size=4
    )
    options = TrainConfig(loss=CrossEntropy(), overlay=LowRank(targets=("*/q.weight", "*/down.weight")))
    learner = reference_learner(network, params, options.learner)
    plain = reference_learner(network, params, TrainConfig(loss=CrossEntropy(), dtype=None).learner)
    first = next(data.batches(0))
    assert learner.evaluate(first).total == pytest.approx(plain.evaluate(first).total, rel=1e-6)
    result = train(network, params, data, options)
    assert all(str(store.scheme) == str(params[key].scheme) for key, store in result.params.items())
    for key, store in params.items():
        np.testing.assert_array_equal(store.values(), before[key])
    assert "1.0.0.1/k.weight" in result.params
    assert result.params["1.0.0.1/k.weight"] is params["1.0.0.1/k.weight"]


def test_overlays_resume_bit_for_bit(tmp_path: Path) -> None:
    network = perceptron(4, 9, 1)
    params = initialise(network)
    settings = {"optimiser": AdamW(lr=0.02), "overlay": OVERLAY}
    whole = train(network, params, waves(), TrainConfig(epochs=4, **settings), validation=0.25)
    train(network, params, waves(), TrainConfig(epochs=2, **settings), validation=0.25, checkpoints=tmp_path)
    rest = train(
        network, params, waves(), TrainConfig(epochs=4, **settings), validation=0.25, checkpoints=tmp_path, resume=True
    )
    for key, factor in whole.overlays.items():
        np.testing.assert_array_equal(rest.overlays[key], factor)
    for key, store in whole.best.items():
        np.testing.assert_array_equal(rest.best[key].values(), store.values())


def test_overlays_are_saved_and_damage_is_named(tmp_path: Path) -> None:
    params = initialise(perceptron(4, 9, 1))
    factors = OVERLAY.begin(params)
    save_overlays(tmp_path / "o.npz", OVERLAY, factors)
    overlay, again = load_overlays(tmp_path / "o.npz")
    assert overlay == OVERLAY
    assert again.keys() == factors.keys()
    for key, factor in factors.items():
        np.testing.assert_array_equal(again[key], factor)
    with pytest.raises(ShapeError, match="does not fit"):
        overlay.merge(initialise(perceptron(4, 8, 1)), again)
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    with pytest.raises(CheckpointError, match="is not a file of overlays"):
        load_overlays(tmp_path / "other.npz")
    data = (tmp_path / "o.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=r"cut.npz"):
        load_overlays(tmp_path / "cut.npz")
    save_overlays(tmp_path / "half.npz", OVERLAY, {k: w for k, w in factors.items() if k != "1.0.0.0/weight:b"})
    with pytest.raises(CheckpointError, match="only one of its two factors"):
        load_overlays(tmp_path / "half.npz")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"targets": ()}, "targets is empty"),
        ({"targets": ("*/q.weight",)}, "no parameter matches"),
        ({"targets": ("*/bias",)}, "is not a matrix"),
    ],
)
def test_overlays_that_make_no_sense_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        learned(initialise(perceptron(4, 9, 1)), LowRank(**settings))  # pyright: ignore[reportArgumentType]
