"""Training on devices: what the reference learner does, with everything resident, and resumed bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.arrays import array
from tests.devices import DEVICES, FAST, device, graphs
from tests.networks import tiny_llama
from tests.oracles.learner import NumpyLearner
from tests.train.faulty_steps import FAULTS, faulty_step
from tests.train.problems import chain, perceptron, waves
from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, GenerationError, ShapeError, SpecError, UnsupportedError
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.dtypes import DTYPES, Scheme, decode, encode
from volumetric.graph import Graph, GraphProgram, NumpyGraphs
from volumetric.layers import LSTM, Dense, LayerNorm
from volumetric.network import Network, initialise
from volumetric.train import (
    BCE,
    L1,
    MSE,
    SGD,
    Adam,
    AdamW,
    Batch,
    CrossEntropy,
    DivergedError,
    Huber,
    LearnerOptions,
    LearnerState,
    Loss,
    Momentum,
    Optimiser,
    RMSprop,
    TrainConfig,
    train,
)
from volumetric.train.device_learner import DeviceLearner, learner_on
from volumetric.train.lora import LowRank

NETWORK = perceptron(4, 6, 1)
DATA = waves()
LLAMA = tiny_llama(vocabulary=11, width=8, blocks=1, heads=2, kv_heads=1, head_dim=4)
CLOSE = 1e-5
"""Largest difference between devices after a few updates, over the largest weight: float32 sums in another order."""


def pair(name: str, network: Network = NETWORK, **options: Any) -> tuple[NumpyLearner, DeviceLearner]:
    given = LearnerOptions(**options)
    return (
        NumpyLearner(network, initialise(network, seed=2), given),
        DeviceLearner(network, initialise(network, seed=2), given, graphs(name)),
    )


def batch(part: slice = slice(None), mask: np.ndarray | None = None) -> Batch:
    return Batch(DATA.features[part], array(DATA.targets)[part], None if mask is None else mask[part])


def sentences(count: int = 3, length: int = 6) -> Batch:
    ids = np.random.default_rng(0).integers(0, 11, (count, length + 1)).astype(np.int32)
    return Batch(ids[:, :-1], ids[:, 1:])


def assert_close(a: LearnerState, b: LearnerState, tolerance: float = CLOSE) -> None:
    assert a.updates == b.updates
    slots = [(a.slots[slot], b.slots[slot]) for slot in a.slots]
    for want, got in ((a.masters, b.masters), *slots, (a.buffers, b.buffers)):
        assert want.keys() == got.keys()
        # of all together: a single weight may just be passing zero
        largest = max((float(np.abs(w).max()) for w in want.values()), default=0.0)
        for key, w in want.items():
            np.testing.assert_allclose(got[key], w, rtol=0, atol=tolerance * largest, err_msg=key)


def assert_equal(a: LearnerState, b: LearnerState) -> None:
    assert_close(a, b, 0.0)


def follow(learners: Sequence[Any], batches: Sequence[Batch], updates: int = 4, rate: float = 0.02) -> None:
    """Both make the same updates, and report the same of each."""
    for _ in range(updates):
        one, two = (learner.step(batches, rate=rate) for learner in learners)
        assert (one.fault, two.fault) == (None, None)
        assert two.clipped == one.clipped
        assert two.tally.count == pytest.approx(one.tally.count, rel=1e-7)
        assert two.tally.total == pytest.approx(one.tally.total, rel=CLOSE)
        assert two.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-4)
    assert_close(learners[0].state, learners[1].state)


OPTIMISERS = [
    SGD(weight_decay=0.1),
    Momentum(momentum=0.9, dampening=0.1, weight_decay=0.01),
    Momentum(nesterov=True),
    RMSprop(lr=1e-2),
    RMSprop(centered=True, momentum=0.5, weight_decay=0.1),
    Adam(weight_decay=0.1),
    AdamW(weight_decay=0.1),
]


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda o: f"{o.kind}-{OPTIMISERS.index(o)}")
def test_optimisers(optimiser: Optimiser, name: str) -> None:
    follow(pair(name, optimiser=optimiser, clip=0.5, decay_vectors=False), [batch()])


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("loss", [MSE(), MSE(reduction="sum"), L1(), Huber(delta=0.3), BCE(), BCE(logits=False)])
def test_losses_of_elements(loss: Loss, name: str) -> None:
    last = Dense(in_features=5, out_features=2, activation="sigmoid" if loss == BCE(logits=False) else "linear")
    network = chain(Dense(in_features=4, out_features=5, activation="silu"), last, inputs=4)
    targets = np.random.default_rng(1).uniform(0, 1, (64, 2)).astype(np.float32)
    weights = (np.arange(64) % 3).astype(np.float32)
    for mask in (None, weights, weights > 0, np.stack([weights, weights[::-1]], 1)):
        follow(pair(name, network, loss=loss, optimiser=SGD()), [Batch(DATA.features, targets, mask)], rate=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_sequences(smoothing: float, name: str) -> None:
    ids = sentences()
    ignored = np.where(np.arange(18).reshape(3, 6) % 5 == 0, -100, array(ids.targets))
    soft = np.random.default_rng(5).dirichlet(np.ones(11), (3, 6)).astype(np.float32)
    weights = np.linspace(0, 1, 18).reshape(3, 6)
    for targets, mask in ((ids.targets, None), (ignored, weights), (soft, None), (soft, np.array([1, 0, 2.0]))):
        learners = pair(name, LLAMA, loss=CrossEntropy(label_smoothing=smoothing), optimiser=AdamW())
        follow(learners, [Batch(ids.inputs, targets, mask)], rate=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_several_batches_of_any_size_make_one_update(name: str) -> None:
    mask = (np.arange(len(DATA)) % 7 < 3) * 1.0
    parts = [batch(slice(a, b), mask) for a, b in ((0, 16), (16, 33), (33, 64))]
    learners = pair(name, clip=0.05)
    follow(learners, parts)
    whole = DeviceLearner(NETWORK, initialise(NETWORK, seed=2), LearnerOptions(clip=0.05), graphs(name))
    for _ in range(4):
        whole.step([batch(mask=mask)], rate=0.02)
    assert_close(whole.state, learners[1].state)


@pytest.mark.parametrize("name", DEVICES)
def test_rows_of_several_axes_are_samples(name: str) -> None:
    network = Network(
        grid=chain(Dense(in_features=1, out_features=1), inputs=1).grid,
        layers={next(iter(NETWORK.layers)): LSTM(input_size=2, hidden_size=3)},
        input_shape=(5, 2),
        input_dtype="float32",
    )
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((4, 5, n)).astype(np.float32) for n in (2, 3))
    follow(pair(name, network, optimiser=SGD()), [Batch(x, y)])


@pytest.mark.parametrize("name", DEVICES)
def test_frozen_weights_stay_in_their_scheme(name: str) -> None:
    params = initialise(NETWORK, seed=2)
    options = LearnerOptions(frozen=("0.*",), dtype="int8", optimiser=AdamW(weight_decay=0.5))
    learner = DeviceLearner(NETWORK, params, options, graphs(name))
    learner.step([batch()], rate=0.1)
    after = learner.params()
    assert np.array_equal(after["0.0.0.0/weight"].values(), decode(encode(params["0.0.0.0/weight"].values(), "int8")))
    assert not np.array_equal(after["1.0.0.0/weight"].master(), params["1.0.0.0/weight"].values())
    assert set(learner.state.masters) == {"1.0.0.0/weight", "1.0.0.0/bias"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_forward_sees_the_weights_that_are_stored(dtype: Any, name: str) -> None:
    """From the same masters the reference gets the same loss, so both rounded them to the same numbers."""
    scheme = Scheme.default(dtype)
    options = LearnerOptions(dtype=scheme, optimiser=SGD())
    params = initialise(NETWORK, seed=2)
    if name == "gpu" and dtype.bits > 32:
        with pytest.raises(UnsupportedError, match=dtype.name):
            DeviceLearner(NETWORK, params, options, graphs(name)).step([batch()], rate=0.1)
        return
    learner = DeviceLearner(NETWORK, params, options, graphs(name))
    for _ in range(3):
        learner.step([batch()], rate=0.05)
    reference = NumpyLearner(NETWORK, params, options)
    reference.restore(learner.state)
    assert learner.evaluate(batch()).total == pytest.approx(reference.evaluate(batch()).total, rel=CLOSE)
    for key, store in learner.params().items():
        master = learner.state.masters[key]
        assert store.scheme == (scheme if key.endswith("weight") else Scheme.parse("float32"))
        assert np.array_equal(store.master(), master)
        assert np.array_equal(store.values(), decode(encode(master, store.scheme)))
    follow((reference, learner), [batch()], updates=1)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_overlays(name: str) -> None:
    overlay = LowRank(rank=2, targets=("*/q.weight", "*/o.weight"))
    learners = pair(name, LLAMA, loss=CrossEntropy(), overlay=overlay, optimiser=SGD())
    follow(learners, [sentences()], rate=0.5)
    merged = learners[1].params()
    assert not np.array_equal(merged["1.0.0.1/q.weight"].values(), initialise(LLAMA, 2)["1.0.0.1/q.weight"].values())
    assert np.array_equal(merged["0.0.0.0/weight"].values(), initialise(LLAMA, 2)["0.0.0.0/weight"].values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("optimiser", OPTIMISERS[2:], ids=lambda o: f"{o.kind}-{OPTIMISERS.index(o)}")
def test_a_restored_state_goes_on_bit_for_bit(optimiser: Optimiser, name: str) -> None:
    options = LearnerOptions(optimiser=optimiser, dtype="int8", clip=0.1)
    start = initialise(NETWORK, seed=2)
    whole = DeviceLearner(NETWORK, start, options, graphs(name))
    parts = [[batch(slice(i, i + 16))] for i in range(0, 48, 16)] + [[batch(slice(0, 20)), batch(slice(20, 64))]]
    for step in (*parts, *parts):
        whole.step(step, rate=0.01)
    first = DeviceLearner(NETWORK, start, options, graphs(name))
    for step in parts:
        first.step(step, rate=0.01)
    second = DeviceLearner(NETWORK, start, options, graphs(name))
    second.restore(first.state)
    for step in parts:
        second.step(step, rate=0.01)
    assert_equal(whole.state, second.state)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_runs_resume_from_checkpoints_bit_for_bit(name: str, tmp_path: Path) -> None:
    config = TrainConfig(optimiser=AdamW(lr=0.01), epochs=4, clip=1.0, accumulate=2)
    params, learner = initialise(NETWORK, seed=2), learner_on(device(name))
    whole = train(NETWORK, params, DATA, config, validation=0.2, learner=learner)
    short = TrainConfig(optimiser=AdamW(lr=0.01), epochs=4, clip=1.0, accumulate=2, max_steps=3)
    train(NETWORK, params, DATA, short, validation=0.2, learner=learner, checkpoints=tmp_path)
    again = train(NETWORK, params, DATA, config, validation=0.2, learner=learner, checkpoints=tmp_path, resume=True)
    assert again.history == whole.history
    for key, store in whole.params.items():
        assert np.array_equal(again.params[key].values(), store.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_transformer_memorises_a_sequence(name: str) -> None:
    config = TrainConfig(loss=CrossEntropy(), optimiser=AdamW(lr=0.02), epochs=60)
    data = sentences(count=2)
    result = train(LLAMA, initialise(LLAMA), (data.inputs, data.targets), config, learner=learner_on(device(name)))
    assert result.history[-1].loss < 0.1 * result.history[0].loss


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_changes_nothing(fault: str, name: str) -> None:
    step = faulty_step(fault)
    for batches in ([step.batch], [batch(), step.batch]):
        _, learner = pair(name, step.network, optimiser=step.optimiser)
        before = learner.state
        report = learner.step(batches, rate=step.rate)
        assert report.fault == step.where
        assert_equal(learner.state, before)
        assert learner.state.updates == 0
        assert np.isfinite(learner.evaluate(batch()).total)
        assert learner.step([batch()], rate=1e-6).fault is None


@pytest.mark.parametrize("name", FAST)
def test_a_diverged_run_stops(name: str) -> None:
    config = TrainConfig(optimiser=SGD(lr=1e30), epochs=5)
    with pytest.raises(DivergedError):
        train(NETWORK, initialise(NETWORK), DATA, config, learner=learner_on(device(name)))


@pytest.mark.parametrize("name", DEVICES)
def test_what_does_not_fit_is_refused(name: str) -> None:
    _, learner = pair(name, LLAMA, loss=CrossEntropy())
    good = sentences()
    with pytest.raises(ShapeError, match="reads other rows"):
        learner.step([Batch(good.features[0], array(good.targets)[0])], rate=0.1)
    with pytest.raises(GenerationError, match="outside of the vocabulary of 11"):
        learner.step([Batch(good.features + 9, good.targets)], rate=0.1)
    with pytest.raises(ShapeError, match="class id 11"):
        learner.step([Batch(good.features, np.full_like(good.targets, 11))], rate=0.1)
    with pytest.raises(SpecError, match="the loss has no counted terms"):
        learner.step([Batch(good.features, np.full_like(good.targets, -100))], rate=0.1)
    with pytest.raises(SpecError, match="the loss has no counted terms"):
        learner.step([Batch(good.features, good.targets, np.zeros((3, 6)))], rate=0.1)
    with pytest.raises(SpecError, match="no parameters to train"):
        pair(name, frozen=("*",))
    with pytest.raises(CheckpointError, match="with another optimiser"):
        pair(name, optimiser=SGD())[1].restore(pair(name, optimiser=AdamW())[1].state)


class Counting(NumpyGraphs):
    """Counts runs of programs."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[int] = []

    def compile(self, graph: Graph, store: Any) -> Any:
        program, runs = super().compile(graph, store), self.runs

        class Counted:
            def run(self, inputs: Sequence[Array]) -> list[Array]:
                runs.append(sum(x.nbytes for x in inputs))
                return program.run(inputs)

        counted: GraphProgram = Counted()
        return counted


def test_an_update_is_one_run_and_only_the_batch_goes_in() -> None:
    network = chain(Dense(in_features=4, out_features=64), LayerNorm(num_features=64), inputs=4)
    counting = Counting()
    learner = DeviceLearner(network, initialise(network), LearnerOptions(clip=1.0), counting)
    x, y = np.zeros((2, 4), np.float32), np.ones((2, 64), np.float32)
    for _ in range(3):
        learner.step([Batch(x, y)], rate=0.1)
    assert counting.runs == [x.nbytes + y.nbytes + 16 + 12] * 3  # with four numbers, and what the last update put out
    learner.step([Batch(x, y)] * 2, rate=0.1)
    assert len(counting.runs) == 6  # two sums of gradients and the update


class Submissions:
    """An executor that counts what it hands to the GPU."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(self, commands: Any) -> Any:
        self.count += 1
        return self._inner.submit(commands)

    def send(self, begun: Any) -> Any:
        self.count += 1
        return self._inner.send(begun)


def test_an_update_on_a_gpu_is_one_submission() -> None:
    context = device("gpu").context
    executor: Any = Submissions(context.new_executor())
    learner = DeviceLearner(
        LLAMA, initialise(LLAMA), LearnerOptions(loss=CrossEntropy(), clip=1.0), GpuGraphs(context, executor)
    )
    for _ in range(3):
        assert learner.step([sentences()], rate=0.01).fault is None
    assert executor.count == 3
    together = learner.steps([sentences()] * 5, rates=[0.01] * 5)
    assert [report.fault for report in together] == [None] * 5
    assert executor.count == 4


@pytest.mark.parametrize("name", DEVICES)
def test_measuring_gives_the_loss_and_the_outputs(name: str) -> None:
    for learners, given in (
        (pair(name, loss=MSE()), batch()),
        (pair(name, LLAMA, loss=CrossEntropy()), sentences()),
    ):
        (tally, outputs), (other, found) = (learner.measure(given) for learner in learners)
        assert other.total == pytest.approx(tally.total, rel=CLOSE)
        assert learners[1].evaluate(given).total == pytest.approx(other.total, rel=CLOSE)
        assert outputs["output"].shape[: array(given.targets).ndim] == array(given.targets).shape
        np.testing.assert_allclose(found["output"], outputs["output"], atol=1e-5)
