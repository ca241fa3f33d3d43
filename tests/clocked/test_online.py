"""Targets that travel: updates are those of gradients through ticks, and of whole passes, where they must be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import machine, rows, weights
from tests.clocked.test_streams import CHAIN
from tests.clocked.test_training import loop
from tests.devices import device
from volumetric import Clocked, Coord, Every, Link
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.builders.sequential import chain
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.layers import Dense, Discrete, LayerNorm, LayerSpec
from volumetric.network import initialise
from volumetric.network.weight_store import Params
from volumetric.train import (
    MSE,
    SGD,
    Adam,
    ArrayData,
    Batch,
    CrossEntropy,
    LearnerOptions,
    Systolic,
    TargetEvent,
    TargetPropagation,
    TrainConfig,
    train,
)
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.tbptt import LEARNS
from volumetric.train.ticked_time import TickedTime

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 7, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 7, 3)).astype(np.float32)
PARAMS = initialise(CHAIN, seed=1)
SLOW = TargetPropagation(method="gradient", gradient_scale=1e-6, gate=0.0, window=5)
"""Targets so near that every budget is 1."""


def learner(clocked: Clocked, params: Params, graphs: Any, mode: TargetPropagation, **more: Any) -> DeviceLearner:
    given: dict[str, Any] = {"optimiser": SGD(lr=1.0)} | more
    options = LearnerOptions(mode=mode, clocked=clocked, **given)
    return DeviceLearner(clocked.network, params, options, graphs)


def run(one: DeviceLearner, batch: Batch, rate: float) -> list[Any]:
    """Run a batch, piece by piece."""
    found = [one.step([piece], rate=rate) for piece in one.windows(batch)]
    assert [report.fault for report in found] == [None] * len(found)
    return found


def forward(clocked: Clocked) -> Clocked:
    """A machine without its links that lead back, and without clocks."""
    links = tuple(link for link in clocked.network.links if link.kind == "shared" or link.source < link.target)
    network = dataclasses.replace(clocked.network, links=links)
    return dataclasses.replace(clocked, network=network, clocks={})


def sums_are_those_through_ticks(clocked: Clocked, batch: Batch, per_row: int, *, times: int = 1, **more: Any) -> None:
    params, slow = weights(clocked), dataclasses.replace(SLOW, ticks_per_row=per_row, delay=6)
    options = LearnerOptions(
        mode=Systolic(ticks_per_row=per_row, delay=6), clocked=clocked, optimiser=SGD(lr=1.0), **more
    )
    whole = DeviceLearner(clocked.network, params, options, NumpyGraphs(np.float64))
    online = learner(clocked, params, NumpyGraphs(np.float64), slow, **more)
    before = online.state.masters
    whole.step([batch], rate=1.0)
    run(online, batch, 1e-8)
    after, want = online.state.masters, whole.state.masters
    assert sorted(after) == sorted(want)
    largest = max(float(np.abs(w - before[key]).max()) for key, w in want.items())
    for key, w in want.items():
        found = (after[key] - before[key]) * 1e8 / times
        np.testing.assert_allclose(found, w - before[key], rtol=0, atol=1e-5 * largest, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize(("which", "per_row"), [(18, 1), (29, 1), (35, 2)])
def test_aligned_gradients_add_up_to_those_through_ticks(which: int, per_row: int) -> None:
    clocked = forward(machine(which))
    sums_are_those_through_ticks(clocked, Batch(rows(clocked, 3, 7), Y), per_row, loss=MSE(reduction="sum"))


def test_a_fault_in_a_window_leaves_streams_as_they_were() -> None:
    """Also where the ticks after it are finite again, as the stream has begun anew."""
    clocked = forward(machine(18))
    given = {**rows(clocked, 3, 7), "resets": np.zeros((3, 7))}
    given["input"][1, 2] = np.nan
    given["resets"][1, 5] = 1
    mode = TargetPropagation(method="gradient", window=32, delay=2)
    one = learner(clocked, weights(clocked), NumpyGraphs(np.float64), mode)
    [piece] = one.windows(Batch(given, Y))
    assert isinstance(one.time, TickedTime)
    streams = one.time.streams(LEARNS, 3)
    before = {key: one.arrays.store.get(streams.place(key)) for key in streams.machine.buffers}
    assert one.step([piece], rate=0.1).fault is not None
    for key, value in before.items():
        np.testing.assert_array_equal(one.arrays.store.get(streams.place(key)), value, err_msg=key)
    healthy = Batch({**given, "input": np.nan_to_num(given["input"])}, Y)
    [piece] = one.windows(healthy)
    assert one.step([piece], rate=0.1).fault is None
    assert any((one.arrays.store.get(streams.place(key)) != value).any() for key, value in before.items())


def test_with_means_they_are_as_many_times_as_long_as_there_are_rows() -> None:
    clocked = forward(machine(18))
    sums_are_those_through_ticks(clocked, Batch(rows(clocked, 3, 7), Y), 1, times=7, loss=MSE())


def test_targets_come_from_several_outputs() -> None:
    dense = [Dense(in_features=3, out_features=3, activation="tanh") for _ in range(4)]
    network = dataclasses.replace(chain(dense, (3,)), outputs={"middle": Coord(1)})
    clocked = Clocked(network=network)
    targets = {"output": Y, "middle": Y[::-1]}
    summed = {name: MSE(reduction="sum") for name in targets}
    sums_are_those_through_ticks(
        clocked, Batch(rows(clocked, 3, 7), targets), 1, loss=summed, loss_weights={"middle": 0.5}
    )


@pytest.mark.thorough
def test_a_stream_that_begins_anew_learns_as_a_fresh_one() -> None:
    clocked, params = forward(machine(49)), weights(forward(machine(49)))
    given: dict[str, Any] = rows(clocked, 3, 7)
    given["resets"] = np.zeros((3, 7), np.int64)
    given["resets"][:, 3] = 1
    late = np.zeros((3, 7))
    late[:, 3:] = 1
    cut, alone = (learner(clocked, params, NumpyGraphs(np.float64), SLOW) for _ in range(2))
    before = cut.state.masters
    run(cut, Batch(given, Y, late), 1e-8)
    run(alone, Batch({name: x[:, 3:] for name, x in given.items() if name != "resets"}, Y[:, 3:]), 1e-8)
    for key, w in before.items():
        found, want = ((one.state.masters[key] - w) * 1e8 for one in (cut, alone))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize("inverse", ["learned", "transpose", "pinv"])
@pytest.mark.parametrize("discrete", [False, True])
def test_a_held_row_is_learned_as_in_a_whole_pass(inverse: Any, discrete: bool) -> None:
    specs: list[LayerSpec] = [Dense(in_features=4, out_features=6, activation="tanh"), Discrete(function="step")]
    specs += [Dense(in_features=6, out_features=5, activation="tanh"), LayerNorm(num_features=5)]
    specs.append(Dense(in_features=5, out_features=3))
    network = chain([spec for spec in specs if discrete or not isinstance(spec, Discrete)], (4,))
    params = initialise(network, 1)
    mode = TargetPropagation(inverse=inverse, noise=0.0, depth_scale=1.2, inverse_rate=0.0, pinv_every=99)
    deep = len(network.layers)
    held = dataclasses.replace(mode, timing="present", ticks_per_row=deep, window=64)
    x, y, optimiser = X[:, 0], Y[:, 0], SGD(lr=1.0)
    whole = DeviceLearner(network, params, LearnerOptions(mode=mode, optimiser=optimiser), NumpyGraphs(np.float64))
    online = learner(Clocked(network=network), params, NumpyGraphs(np.float64), held)
    before = whole.state.masters
    told = whole.step([Batch(x, y)], rate=1e-8).layers
    [report] = run(online, Batch(x[:, None], y[:, None]), 1e-8)
    assert [(t.where, t.kind) for t in report.layers] == [(t.where, t.kind) for t in told]
    ticks = 2 * deep - 1  # the row goes up, what is told comes down, to each layer once
    np.testing.assert_allclose([t.gap for t in report.layers], [t.gap / ticks for t in told], rtol=1e-5)
    for key, w in whole.state.masters.items():
        moved = (online.state.masters[key] - before[key]) * 1e8
        np.testing.assert_allclose(moved, (w - before[key]) * 1e8, rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.thorough
def test_programs_of_any_length_give_the_same_bits() -> None:
    clocked, params, batch = Clocked(network=loop()), initialise(loop()), Batch(X[:, :4, :2], Y[:, :4, :2])
    for timing in ("aligned", "present"):
        states = []
        for window in (2, 5):
            mode = TargetPropagation(timing=timing, window=window)
            one = learner(clocked, params, NumpyGraphs(), mode, optimiser=Adam(lr=1e-2))
            run(one, batch, 1e-2)
            states.append(one.state)
        assert any(not np.array_equal(w, params[key].values()) for key, w in states[0].masters.items() if key in params)
        for key, w in states[0].masters.items():
            np.testing.assert_array_equal(states[1].masters[key], w, err_msg=key)


@pytest.mark.thorough
def test_memory_does_not_grow_with_ticks() -> None:
    clocked = Clocked(network=CHAIN)
    one = learner(clocked, initialise(CHAIN), NumpyGraphs(), TargetPropagation(window=4))
    kept = []
    for count in (8, 64):
        run(one, Batch(np.zeros((2, count, 4), np.float32), np.zeros((2, count, 3), np.float32)), 1e-3)
        store = one.arrays.store
        kept.append((sum(store.get(key).nbytes for key in list(store.keys())), len(list(one.arrays.programs))))
    assert kept[0] == kept[1]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "which"), [("cpu", 35), ("gpu", None)])
def test_devices_learn_alike(name: str, which: int | None) -> None:
    clocked = Clocked(network=loop()) if which is None else machine(which)
    params = weights(clocked)
    batch = Batch(rows(clocked, 2, 3), Y[:2, :3, : clocked.network.shapes[clocked.network.taps["output"]][1]])
    mode = TargetPropagation(window=3, gate=0.0, timing="present" if which is None else "aligned")
    made = [learner(clocked, params, device(one).graphs(), mode) for one in ("reference", name)]
    for one in made:
        run(one, batch, 0.1)
    for key, w in made[0].state.masters.items():
        np.testing.assert_allclose(made[1].state.masters[key], w, rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.thorough
def test_resumes_between_ticks(tmp_path: Path) -> None:
    clocked = Clocked(network=CHAIN, clocks={Coord(1): Every(period=2)})
    data = ArrayData(inputs=np.tile(X, (2, 1, 1)), targets=np.tile(Y, (2, 1, 1)), batch_size=4)
    mode = TargetPropagation(window=4, inverse_steps=2)

    def going(path: str, steps: int | None, *, resume: bool = False) -> Any:
        config = TrainConfig(mode=mode, optimiser=Adam(lr=1e-2), epochs=2, max_steps=steps)
        given: Any = {"checkpoints": tmp_path / path, "resume": resume, "device": "reference", "validation": 0.3}
        return train(clocked, PARAMS, data, config, **given)

    whole = going("whole", None)
    going("cut", 3)
    resumed = going("cut", None, resume=True)
    assert resumed.steps == whole.steps == 6
    for key, store in whole.params.items():
        np.testing.assert_array_equal(resumed.params[key].values(), store.values(), err_msg=key)


@pytest.mark.thorough
def test_it_learns_to_recall_while_it_runs() -> None:
    dense = [Dense(in_features=n, out_features=8, activation="tanh") for n in (2, 8, 8)]
    network = chain([*dense, Dense(in_features=8, out_features=2)], (2,))
    late = Link(kind="activation", source=Coord(0), target=Coord(3), combine="add", delay=2)
    network = dataclasses.replace(network, links=(late,))
    ids = np.random.default_rng(1).integers(0, 2, (64, 16))
    targets = np.concatenate(
        [np.full((64, 1), -100), ids[:, :-1]], 1
    )  # over the link comes the row, not the one before
    told: list[TargetEvent] = []
    for method in ("gradient", "difference"):
        mode = TargetPropagation(method=method)
        config = TrainConfig(mode=mode, loss=CrossEntropy(), optimiser=Adam(lr=1e-2), epochs=5, accuracy=True)
        x = np.eye(2, dtype=np.float32)[ids]
        result = train(
            Clocked(network=network),
            initialise(network, 1),
            (x, targets),
            config,
            validation=0.25,
            reporters=[lambda event: told.append(event) if isinstance(event, TargetEvent) else None],
            device="reference",
        )
        assert result.history[-1].accuracy is not None
        assert result.history[-1].accuracy > 0.95
    assert len(told[0].layers) == 4


def test_what_does_not_go_together_is_refused() -> None:
    for wrong in ({"timing": "late"}, {"every": 0}, {"window": 1.5}, {"ticks_per_row": 0}, {"delay": -1}):
        with pytest.raises(SpecError, match=f"target propagation: {next(iter(wrong))}"):
            TargetPropagation(**wrong)  # pyright: ignore[reportArgumentType]
    signs = chain([Dense(in_features=4, out_features=3), Discrete(), Dense(in_features=3, out_features=3)], (4,))
    clocked, params = Clocked(network=signs), initialise(signs)
    with pytest.raises(UnsupportedError, match=r"no gradient crosses the discrete layer at 1\.0\.0\.0"):
        learner(clocked, params, NumpyGraphs(), SLOW)
    with pytest.raises(SpecError, match="accumulate must be 1"):
        learner(clocked, params, NumpyGraphs(), TargetPropagation()).step([Batch(X, Y)] * 2, rate=1.0)
    with pytest.raises(SpecError, match="timing is only for clocked networks"):
        train(signs, params, (X[:, 0], Y[:, 0]), TrainConfig(mode=TargetPropagation(timing="present")), device="cpu")
    x = X.copy()
    x[1, 2] = np.nan
    one = learner(Clocked(network=CHAIN), PARAMS, NumpyGraphs(), TargetPropagation(window=2))
    before = one.state.masters
    faults = [one.step([piece], rate=0.0).fault for piece in list(one.windows(Batch(x, Y)))[:2]]
    assert faults == ["dense at 0.0.0.0, tick 2 of the sequences", faults[1]]
    for key, w in one.state.masters.items():
        np.testing.assert_array_equal(w, before[key])
