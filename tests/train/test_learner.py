"""The learner: micro-batches, sequences, clipping, frozen weights, faults, and weights as they are stored."""

from __future__ import annotations

import numpy as np
import pytest

from tests.arrays import array
from tests.learners import reference_learner
from tests.networks import tiny_llama
from tests.train.faulty_steps import FAULTS, faulty_step
from tests.train.problems import chain, perceptron, waves
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.dtypes import Scheme, decode, encode
from volumetric.layers import LSTM, Dense, RMSNorm
from volumetric.network import Network, initialise
from volumetric.train import (
    MSE,
    SGD,
    AdamW,
    Batch,
    CrossEntropy,
    LearnerOptions,
    LearnerState,
)
from volumetric.train.device_learner import DeviceLearner

NETWORK = perceptron(4, 6, 1)
DATA = waves()


def learner(network: Network = NETWORK, host: type = np.float64, **options) -> DeviceLearner:
    return reference_learner(network, initialise(network, seed=2), LearnerOptions(**options), host)


def batch(part: slice = slice(None), mask: np.ndarray | None = None) -> Batch:
    return Batch(DATA.features[part], array(DATA.targets)[part], None if mask is None else mask[part])


def assert_same(a: LearnerState, b: LearnerState, tolerance: float) -> None:
    assert a.masters.keys() == b.masters.keys()
    for key, w in a.masters.items():
        np.testing.assert_allclose(w, b.masters[key], rtol=0, atol=tolerance)


def test_micro_batches_equal_one_batch_also_where_masks_are_uneven() -> None:
    mask = (np.arange(len(DATA)) % 7 < 3) * 1.0
    mask[:5] = 0  # the first micro-batch counts for less
    whole, parts = learner(clip=0.05), learner(clip=0.05)
    for _ in range(3):
        one = whole.step([batch(mask=mask)], rate=0.01)
        four = parts.step([batch(slice(i, i + 16), mask) for i in range(0, 64, 16)], rate=0.01)
        assert one.tally.count == four.tally.count == mask.sum()
        assert one.gradient_norm == pytest.approx(four.gradient_norm, rel=1e-12)
        assert_same(whole.state, parts.state, 1e-14)


def test_an_update_follows_the_gradient() -> None:
    with_sgd = learner(optimiser=SGD(), loss=MSE())
    before, loss = with_sgd.state.masters, with_sgd.evaluate(batch())
    report = with_sgd.step([batch()], rate=1e-6)
    after = with_sgd.evaluate(batch())
    moved = np.sqrt(sum(np.square(w - before[key]).sum() for key, w in with_sgd.state.masters.items()))
    assert report.tally.total == pytest.approx(loss.total)
    assert moved == pytest.approx(1e-6 * report.gradient_norm, rel=1e-6)
    slope = (after.total / after.count - loss.total / loss.count) / -1e-6
    assert slope == pytest.approx(report.gradient_norm**2, rel=1e-3)


def test_clipping_acts() -> None:
    free, bound = learner(optimiser=SGD()), learner(optimiser=SGD(), clip=1e-3)
    start = bound.state.masters
    reports = [x.step([batch()], rate=1.0) for x in (free, bound)]
    assert [r.clipped for r in reports] == [False, True]
    assert reports[0].gradient_norm == reports[1].gradient_norm > 1e-3
    moved = np.sqrt(sum(np.square(w - start[key]).sum() for key, w in bound.state.masters.items()))
    assert moved == pytest.approx(1e-3, rel=1e-2)
    assert moved <= 1e-3


def test_sequences_are_computed_apart() -> None:
    network = tiny_llama(vocabulary=11, width=8, blocks=1, heads=2, kv_heads=1, head_dim=4)
    ids = np.random.default_rng(0).integers(0, 11, (3, 6)).astype(np.int32)
    options = LearnerOptions(loss=CrossEntropy(), optimiser=SGD())
    params = initialise(network, seed=1)
    together, apart = (reference_learner(network, params, options, np.float64) for _ in range(2))
    together.step([Batch(ids[:, :-1], ids[:, 1:])], rate=0.1)
    apart.step([Batch(ids[i : i + 1, :-1], ids[i : i + 1, 1:]) for i in range(3)], rate=0.1)
    assert_same(together.state, apart.state, 1e-14)


def test_padding_that_is_ignored_changes_nothing() -> None:
    network = tiny_llama(vocabulary=11, width=8, blocks=1, heads=2, kv_heads=1, head_dim=4)
    x, y = np.array([[1, 2, 3]], np.int32), np.array([[2, 3, 4]])
    padded = Batch(np.pad(x, ((0, 0), (0, 2))), np.pad(y, ((0, 0), (0, 2)), constant_values=-100))
    options = LearnerOptions(loss=CrossEntropy())
    params = initialise(network, seed=1)
    short, long = (reference_learner(network, params, options, np.float64) for _ in range(2))
    assert short.step([Batch(x, y)], rate=0.1).tally.count == long.step([padded], rate=0.1).tally.count == 3
    assert_same(short.state, long.state, 1e-12)


def test_one_sequence_is_not_taken_for_samples() -> None:
    network = tiny_llama(vocabulary=11, width=8, blocks=1, heads=2, kv_heads=1, head_dim=4)
    with pytest.raises(ShapeError, match=r"multi_head_attention at 1.0.0.1 reads other rows"):
        learner(network, loss=CrossEntropy()).step([Batch(np.arange(6), np.arange(6))], rate=0.1)


def test_rows_of_sequences_are_samples() -> None:
    network = Network(
        grid=chain(Dense(in_features=1, out_features=1), inputs=1).grid,
        layers={next(iter(NETWORK.layers)): LSTM(input_size=2, hidden_size=3)},
        input_shape=(5, 2),
        input_dtype="float32",
    )
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((4, 5, 2)), rng.standard_normal((4, 5, 3))
    together, apart = learner(network, optimiser=SGD()), learner(network, optimiser=SGD())
    together.step([Batch(x, y)], rate=0.1)
    apart.step([Batch(x[i : i + 1], y[i : i + 1]) for i in range(4)], rate=0.1)
    assert_same(together.state, apart.state, 1e-14)


def test_frozen_weights_stay() -> None:
    params = initialise(NETWORK, seed=2)
    some = reference_learner(NETWORK, params, LearnerOptions(frozen=("0.0.0.0/*",), optimiser=AdamW(weight_decay=0.5)))
    some.step([batch()], rate=0.1)
    after = some.params()
    assert after["0.0.0.0/weight"] is params["0.0.0.0/weight"]
    assert not np.array_equal(after["1.0.0.0/weight"].values(), params["1.0.0.0/weight"].values())
    with pytest.raises(SpecError, match=r"no parameter matches '7\.\*'"):
        learner(frozen=("7.*",))
    with pytest.raises(SpecError, match="no parameters to train"):
        learner(frozen=("*",))


def test_frozen_weights_are_brought_into_their_scheme_too() -> None:
    params = initialise(NETWORK, seed=2)
    options = LearnerOptions(frozen=("0.*",), dtype="int8")
    quantised = reference_learner(NETWORK, params, options)
    quantised.step([batch()], rate=0.1)
    kept = quantised.params()["0.0.0.0/weight"]
    assert np.array_equal(kept.values(), decode(encode(params["0.0.0.0/weight"].values(), "int8")))
    plain = reference_learner(NETWORK, quantised.params(), LearnerOptions())
    assert plain.evaluate(batch()) == quantised.evaluate(batch())


def test_decay_can_spare_gains_and_biases() -> None:
    network = chain(RMSNorm(num_features=4), Dense(in_features=4, out_features=1), inputs=4)
    still = Batch(np.zeros((1, 4)), np.zeros((1, 1)))  # no gradient anywhere: what moves is decayed
    for decay_vectors, expected in ((True, 0.95), (False, 1.0)):
        one = learner(network, optimiser=SGD(weight_decay=0.5), decay_vectors=decay_vectors)
        one.step([still], rate=0.1)
        np.testing.assert_allclose(one.state.masters["0.0.0.0/weight"], expected)


def test_given_params_do_not_change() -> None:
    params = initialise(NETWORK, seed=2)
    before = {key: store.values().copy() for key, store in params.items()}
    trained = reference_learner(NETWORK, params, LearnerOptions())
    trained.step([batch()], rate=0.1)
    for key, store in params.items():
        assert not store.has_master
        assert np.array_equal(store.values(), before[key])
        assert not np.array_equal(trained.params()[key].values(), before[key])


@pytest.mark.parametrize("text", ["int4:g32", "bfloat16", "ternary:row"])
def test_forward_sees_the_weights_that_are_stored(text: str) -> None:
    scheme = Scheme.parse(text)
    quantised = learner(host=np.float32, dtype=scheme)
    quantised.step([batch()], rate=0.01)
    params = quantised.params()
    assert {key: str(store.scheme) for key, store in params.items()} == {
        "0.0.0.0/weight": text,
        "0.0.0.0/bias": "float32",
        "1.0.0.0/weight": text,
        "1.0.0.0/bias": "float32",
    }
    for key, w in quantised.state.masters.items():
        assert np.array_equal(params[key].master(), w)
        assert np.array_equal(params[key].values(), decode(encode(w, params[key].scheme)))
    again = reference_learner(NETWORK, params, LearnerOptions())  # schemes are kept, masters too
    assert again.evaluate(batch()) == quantised.evaluate(batch())
    assert again.step([batch()], rate=0.0).tally == quantised.step([batch()], rate=0.0).tally


def test_schemes_by_pattern() -> None:
    chosen = learner(host=np.float32, dtype={"1.*/weight": "int8", "*/weight": "int4"}).params()
    assert [str(store.scheme) for store in chosen.values()] == ["int4:g32", "float32", "int8:g32", "float32"]
    with pytest.raises(SpecError, match="no parameter matches"):
        learner(dtype={"*/nothing": "int8"})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_changes_nothing(fault: str) -> None:
    step = faulty_step(fault)
    one = learner(step.network, host=np.float32, optimiser=step.optimiser)
    before = one.state
    report = one.step([step.batch], rate=step.rate)
    assert report.fault == step.where
    assert one.state.updates == 0
    assert_same(one.state, before, 0)
    assert np.isfinite(one.evaluate(batch()).total)


def test_a_state_of_something_else_is_refused() -> None:
    state = learner(host=np.float32).state
    for other in (
        learner(optimiser=SGD(), host=np.float32),
        learner(perceptron(4, 5, 1), host=np.float32),
        learner(),
    ):
        with pytest.raises(CheckpointError):
            other.restore(state)
