"""Training through ticks: gradients are those of the sequence and of differences; windows, resets and resumes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import machine, rows, weights
from tests.clocked.test_streams import CHAIN
from tests.devices import device
from tests.learners import reference_learner
from tests.oracles.learner import NumpyLearner
from volumetric import Clocked, Coord, Every, Grid, Link, Network
from volumetric.base.errors import CheckpointError, ShapeError, SpecError, UnsupportedError
from volumetric.builders.sequential import chain
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.layers import Dense, Dropout
from volumetric.network import initialise
from volumetric.network.weight_store import Params
from volumetric.train import (
    MSE,
    SGD,
    Adam,
    ArrayData,
    Backprop,
    Batch,
    CrossEntropy,
    DivergedError,
    LearnerOptions,
    LearnerState,
    Systolic,
    TargetPropagation,
    TrainConfig,
    open_learner,
    read_checkpoint,
    train,
)
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.ticked_time import TickedTime

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 6, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 6, 3)).astype(np.float32)
PARAMS = initialise(CHAIN, seed=1)
WAVE = Clocked(network=CHAIN, start="wavefront")


def learner(clocked: Clocked, params: Params, graphs: Any, mode: Systolic | None = None, **more: Any) -> DeviceLearner:
    options = LearnerOptions(mode=mode or Systolic(), clocked=clocked, optimiser=SGD(lr=1.0), **more)
    return DeviceLearner(clocked.network, params, options, graphs)


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_wavefront_learns_as_the_sequence_does(name: str) -> None:
    ticking = learner(WAVE, PARAMS, device(name).graphs())
    whole = reference_learner(CHAIN, PARAMS, LearnerOptions(optimiser=SGD(lr=1.0)))
    mask = np.ones((3, 6))
    mask[1, 4:] = 0
    batch = Batch(X, Y, mask)
    assert isinstance(ticking.time, TickedTime)
    assert ticking.time.delays == {"output": 3}
    tally, outputs = ticking.measure(batch)
    np.testing.assert_allclose(outputs["output"], whole.measure(batch)[1]["output"], rtol=0, atol=1e-5)
    found, want = ticking.step([batch], rate=1.0), whole.step([batch], rate=1.0)
    assert found.tally.count == want.tally.count == tally.count
    assert found.tally.total == pytest.approx(want.tally.total, rel=1e-6)
    for key, w in whole.state.masters.items():
        np.testing.assert_allclose(ticking.state.masters[key], w, rtol=0, atol=1e-6, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "per_row"), [(1, 1), (4, 2), (15, 1), (21, 1)])
def test_gradients_are_those_of_differences(seed: int, per_row: int) -> None:
    clocked = machine(seed)
    x: dict[str, Any] = rows(clocked, 2, 4)
    x["resets"] = np.array([[0, 0, 1, 0], [0, 0, 0, 0]])
    y = RNG.standard_normal((2, 4, 3))
    mode, summed = Systolic(ticks_per_row=per_row, delay=6), MSE(reduction="sum")
    ticking = learner(clocked, weights(clocked), NumpyGraphs(np.float64), mode, loss=summed)
    before = ticking.state
    ticking.step([Batch(x, y)], rate=1.0)
    after = ticking.state.masters
    rng = np.random.default_rng(seed)
    way = {key: rng.standard_normal(w.shape) for key, w in before.masters.items()}
    slope = sum(float(((before.masters[key] - after[key]) * way[key]).sum()) for key in way)
    assert slope != 0
    totals = []
    for far in (1e-5, -1e-5):
        moved = {key: w + far * way[key] for key, w in before.masters.items()}
        ticking.restore(LearnerState(0, moved, before.slots))
        totals.append(ticking.evaluate(Batch(x, y)).total)
    assert (totals[0] - totals[1]) / 2e-5 == pytest.approx(slope, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "clocked"), [("cpu", machine(4)), ("gpu", None)])
def test_devices_learn_alike(name: str, clocked: Clocked | None) -> None:
    clocked = clocked or Clocked(network=loop())  # few pipelines: a software GPU takes long for each
    count = 4 if name == "cpu" else 2
    batch = Batch(rows(clocked, 2, count), Y[:2, :count, : clocked.network.shapes[clocked.network.taps["output"]][1]])
    mode, params = Systolic(delay=count), weights(clocked)
    made = [learner(clocked, params, device(one).graphs(), mode) for one in ("reference", name)]
    for one in made:
        one.step([batch], rate=0.1)
    for key, w in made[0].state.masters.items():
        np.testing.assert_allclose(made[1].state.masters[key], w, rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("mode", [Systolic(delay=3), TargetPropagation(delay=3)], ids=lambda mode: mode.kind)
def test_links_back_without_a_delay_learn_as_with_one_tick(mode: Systolic | TargetPropagation) -> None:
    """As streams run them: `Clocked` says that a link takes max(1, delay) ticks, wherever it leads."""
    found = list[dict[str, np.ndarray]]()
    for delay in (0, 1):
        back = [(1, 1), (2, 0)]
        links = [Link(kind="activation", source=Coord(a), target=Coord(b), combine="add", delay=delay) for a, b in back]
        clocked = Clocked(network=dataclasses.replace(loop(), links=tuple(links)))
        x = rows(clocked, 2, 5)["input"]
        config = TrainConfig(mode=mode, loss=MSE(), optimiser=SGD(lr=0.1), epochs=2)
        result = train(clocked, weights(clocked), (x, np.ones((2, 5, 2), np.float32)), config, device="reference")
        found.append({key: store.values() for key, store in result.params.items()})
    assert all((found[0][key] != value.values()).any() for key, value in weights(clocked).items())
    for key, value in found[1].items():
        np.testing.assert_array_equal(found[0][key], value, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [4, 6, 21])
def test_what_is_computed_once_more_has_the_same_bits(seed: int) -> None:
    clocked, resets = machine(seed), np.array([[0, 0, 1, 0, 0, 0], [0] * 6])
    given, made = {**rows(clocked, 2, 6), "resets": resets}, list[dict[str, np.ndarray]]()
    for checkpoint in (0, 1, 4):
        one = learner(clocked, weights(clocked), NumpyGraphs(), Systolic(delay=6, checkpoint=checkpoint))
        assert one.step([Batch(given, Y[:2])], rate=1.0).fault is None
        made.append(dict(one.state.masters))
    for other in made[1:]:
        for key, w in made[0].items():
            np.testing.assert_array_equal(other[key], w, err_msg=key)


@pytest.mark.thorough
def test_windows_go_on_and_cut_gradients() -> None:
    def totals(mode: Systolic, batch: Batch) -> list[tuple[float, float]]:
        one = learner(WAVE, PARAMS, NumpyGraphs(), mode)
        return [(t.total, t.count) for t in (one.step([part], rate=0.0).tally for part in one.windows(batch))]

    whole = totals(Systolic(), Batch(X, Y))
    cut = totals(Systolic(window=4), Batch(X, Y))
    assert [count for _, count in cut] == [9, 36, 9]  # rows 0, 1 … 4, 5: ticks 3, 4 … 7, 8
    assert sum(total for total, _ in cut) == pytest.approx(whole[0][0], rel=1e-6)
    late = np.zeros((3, 6))
    late[:, 5] = 1
    found = totals(Systolic(window=4), Batch(X, Y, late))  # what comes before is only run
    np.testing.assert_allclose(found, [cut[2]], rtol=1e-6)
    anew = totals(Systolic(window=5, carry=False), Batch(X, Y))  # 2 rows and a delay of 3
    apart = [totals(Systolic(), Batch(X[:, t : t + 2], Y[:, t : t + 2]))[0] for t in (0, 2, 4)]
    np.testing.assert_allclose(anew, apart, rtol=1e-6)
    # of a window whose past is constant, gradients are those of a fresh one only where nothing was before
    one, other = (learner(WAVE, PARAMS, NumpyGraphs(), Systolic(window=window)) for window in (4, 64))
    norms = [one.step([part], rate=0.0).gradient_norm for part in one.windows(Batch(X, Y))]
    late[:], late[:, 0] = 0, 1
    assert norms[0] == pytest.approx(other.step([Batch(X, Y, late)], rate=0.0).gradient_norm, rel=1e-6)
    late[:], late[:, 5] = 0, 1
    assert norms[2] < other.step([Batch(X, Y, late)], rate=0.0).gradient_norm


def test_streams_that_begin_anew_are_sequences_of_their_own() -> None:
    resets = np.zeros((3, 6), np.int64)
    resets[:, 4] = 1
    one = learner(WAVE, PARAMS, NumpyGraphs())
    found = one.evaluate(Batch({"input": X, "resets": resets}, Y))
    after = one.evaluate(Batch(X[:, 4:], Y[:, 4:]))
    before = one.evaluate(Batch(X[:, :1], Y[:, :1]))  # the outputs of rows 1 … 3 were still on their way
    assert found.count == after.count + before.count
    assert found.total == pytest.approx(after.total + before.total, rel=1e-5)


def test_resumes_in_the_middle_of_a_sequence(tmp_path: Path) -> None:
    clocked = Clocked(network=CHAIN, clocks={Coord(1): Every(period=2)})
    data = ArrayData(inputs=np.tile(X, (2, 1, 1)), targets=np.tile(Y, (2, 1, 1)), batch_size=4)

    def run(path: str, steps: int | None, *, resume: bool = False) -> Any:
        config = TrainConfig(mode=Systolic(window=4), optimiser=Adam(lr=1e-2), epochs=2, max_steps=steps)
        return train(clocked, PARAMS, data, config, checkpoints=tmp_path / path, resume=resume, device="reference")

    whole = run("whole", None)
    assert whole.steps == 12  # two epochs of two batches of three windows
    run("cut", 5)
    saved = read_checkpoint(tmp_path / "cut" / "step-0000000005.npz")
    assert saved.learner.carried["plane/0/1"].shape == (1, 2, 6)
    resumed = run("cut", None, resume=True)
    for key, store in whole.params.items():
        np.testing.assert_array_equal(resumed.params[key].values(), store.values(), err_msg=key)
    other = learner(Clocked(network=CHAIN, start="wavefront"), PARAMS, NumpyGraphs())
    with pytest.raises(CheckpointError, match="stream states"):
        other.restore(LearnerState(5, other.state.masters, {}, carried=saved.learner.carried))


@pytest.mark.thorough
def test_a_loop_learns_to_remember() -> None:
    network = loop()
    ids = np.random.default_rng(1).integers(0, 2, (64, 8))
    x = np.eye(2, dtype=np.float32)[ids]
    targets = np.concatenate([np.full((64, 2), -100), ids[:, :-2]], 1)
    config = TrainConfig(mode=Systolic(), loss=CrossEntropy(), optimiser=Adam(lr=2e-2), epochs=80, accuracy=True)
    params = initialise(network, seed=1)
    result = train(Clocked(network=network), params, (x, targets), config, validation=0.25, device="reference")
    assert result.history[-1].accuracy is not None
    assert result.history[-1].accuracy > 0.95


def loop() -> Network:
    """Three layers, of which the second reads itself."""
    return Network(
        grid=Grid(3),
        layers={
            Coord(0): Dense(in_features=2, out_features=8, activation="tanh"),
            Coord(1): Dense(in_features=8, out_features=8, activation="tanh"),
            Coord(2): Dense(in_features=8, out_features=2),
        },
        links=(Link(kind="activation", source=Coord(1), target=Coord(1), combine="add", delay=1),),
        input_shape=(2,),
        input_dtype="float32",
    )


def test_odd_numbers_are_named_by_layer_and_tick() -> None:
    x = X.copy()
    x[1, 2] = np.nan
    one = learner(WAVE, PARAMS, NumpyGraphs(), Systolic(window=4))
    before = one.state.masters
    first, second, _ = one.windows(Batch(x, Y, np.repeat([[1, 1, 1, 0, 0, 1]], 3, 0)))
    assert one.step([first], rate=0.0).fault is None  # what the second row makes of it is still on its way
    assert one.step([second], rate=0.1).fault == "lstm at 1.0.0.0, tick 4 of the sequences"
    for key, w in one.state.masters.items():
        np.testing.assert_array_equal(w, before[key])
    assert one.evaluate(Batch(x, Y)).fault == "dense at 0.0.0.0, tick 2 of the sequences"
    with pytest.raises(DivergedError, match="inputs"):
        train(WAVE, PARAMS, (x, Y), TrainConfig(mode=Systolic()), device="reference")


def test_what_does_not_go_together_is_refused() -> None:
    for wrong in (
        {"window": 0},
        {"checkpoint": -1},
        {"ticks_per_row": 0},
        {"delay": -1},
        {"delay": "soon"},
        {"window": 2.5},
    ):
        with pytest.raises(SpecError, match=f"systolic: {next(iter(wrong))}"):
            Systolic(**wrong)  # pyright: ignore[reportArgumentType]
    graphs = NumpyGraphs()
    with pytest.raises(SpecError, match="window of 3 ticks is too short for a delay of 3"):
        learner(WAVE, PARAMS, graphs, Systolic(window=3))
    with pytest.raises(SpecError, match="'backprop' does not train clocked"):
        train(WAVE, PARAMS, (X, Y), TrainConfig(mode=Backprop()))
    with pytest.raises(SpecError, match="needs a clocked network"):
        train(CHAIN, PARAMS, (X, Y), TrainConfig(mode=Systolic()), device="reference")
    with pytest.raises(UnsupportedError, match="NumpyLearner does not train clocked"):
        train(WAVE, PARAMS, (X, Y), TrainConfig(mode=Systolic()), learner=NumpyLearner)
    dropping = chain([Dense(in_features=4, out_features=3), Dropout(p=0.5)], (4,))
    with pytest.raises(UnsupportedError, match=r"dropout at 1\.0\.0\.0"):
        learner(Clocked(network=dropping), initialise(dropping), graphs)
    one = learner(WAVE, PARAMS, graphs, Systolic(window=4))
    with pytest.raises(UnsupportedError, match="observers"):
        one.watch([lambda event: None])  # pyright: ignore[reportArgumentType]
    with pytest.raises(SpecError, match="3 windows"):
        one.step([Batch(X, Y)], rate=1.0)
    with pytest.raises(ShapeError, match=r"targets: expected \[3, 6, …\]"):
        one.evaluate(Batch(X, Y[:, :5]))
    with pytest.raises(ShapeError, match="no input 'input'"):
        one.evaluate(Batch({"resets": np.zeros((3, 6))}, Y))
    with pytest.raises(ShapeError, match="resets: expected"):
        one.evaluate(Batch({"input": X, "resets": np.zeros((3, 5))}, Y))
    with pytest.raises(ShapeError, match="no rows"):
        one.evaluate(Batch(X[:, :0], Y[:, :0]))
    with pytest.raises(SpecError, match="no counted terms"):
        one.step([Batch(X, Y, np.zeros((3, 6)))], rate=1.0)
    assert isinstance(open_learner("reference")(CHAIN, PARAMS, LearnerOptions()), DeviceLearner)
