"""Training over windows of streams: what is carried from window to window, documents, resuming, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import CheckpointError, ShapeError, SpecError, UnsupportedError
from volumetric.builders import stack
from volumetric.layers import Dense, MultiHeadAttention
from volumetric.network import Params, initialise
from volumetric.train import (
    SGD,
    AdamW,
    Backprop,
    Batch,
    CrossEntropy,
    DivergedError,
    LearnerOptions,
    StreamWindows,
    TrainConfig,
    train,
)
from volumetric.train.device_learner import DeviceLearner, learner_on

VOCABULARY, STREAMS, LENGTH = 7, 3, 4
IDS = np.random.default_rng(0).integers(0, VOCABULARY, 90)
NETWORK = stack(6, [["A", "C"], "L"], embed=VOCABULARY, classes=VOCABULARY)
OPTIONS = LearnerOptions(loss=CrossEntropy(), optimiser=SGD(), mode=Backprop(carry=True))
CONFIG = TrainConfig(loss=CrossEntropy(), optimiser=AdamW(lr=1e-2), mode=Backprop(carry=True), epochs=2)


def learner(where: str = "cpu", params: Params | None = None) -> DeviceLearner:
    made = learner_on(device(where))(NETWORK, params or initialise(NETWORK, 1), OPTIONS)  # pyright: ignore[reportArgumentType]  (devices of graphs)
    assert isinstance(made, DeviceLearner)
    return made


def windows(**changes: object) -> StreamWindows:
    return StreamWindows(IDS, **({"length": LENGTH, "batch": STREAMS} | changes))  # pyright: ignore[reportArgumentType]


def whole(data: StreamWindows) -> Batch:
    """All windows as one."""
    parts = list(data.batches(0))
    given = {name: np.concatenate([part.inputs_by_name[name] for part in parts], 1) for name in parts[0].inputs_by_name}
    masks = [part.mask for part in parts if part.mask is not None]
    mask = np.concatenate(masks, 1) if masks else None  # pyright: ignore[reportCallIssue, reportArgumentType]
    return Batch(given, np.concatenate([np.asarray(part.targets) for part in parts], 1), mask)


def test_windows_are_the_rows_of_streams_one_behind_the_other() -> None:
    data = windows()
    every = whole(data)
    each = (len(IDS) - 1) // STREAMS
    assert data.windows == each // LENGTH == 7
    for stream in range(STREAMS):
        rows = IDS[stream * each :][: data.windows * LENGTH + 1]
        np.testing.assert_array_equal(every.features[stream], rows[:-1])
        np.testing.assert_array_equal(np.asarray(every.targets)[stream], rows[1:])
    np.testing.assert_array_equal(every.inputs_by_name["resets"].sum(1), 1)
    assert [len(list(data.batches(3, start))) for start in (0, 5)] == [7, 2]
    cut = whole(windows(separator=2))
    ends = cut.features == 2
    np.testing.assert_array_equal(cut.mask, 1 - ends)
    np.testing.assert_array_equal(cut.inputs_by_name["resets"][:, 1:], ends[:, :-1])


def test_what_is_no_stream_is_refused() -> None:
    for changes, message in (
        ({"length": 0}, "length must be an integer above 0"),
        ({"batch": True}, "batch must be an integer above 0"),
        ({"length": 30}, "3 streams with windows of 30 need at least 91 ids, got 90"),
    ):
        with pytest.raises((SpecError, ShapeError), match=message):
            windows(**changes)
    with pytest.raises(ShapeError, match=r"integers \[N\], got float64"):
        StreamWindows(IDS * 0.5)


@pytest.mark.thorough
@pytest.mark.parametrize(("where", "separator"), [("cpu", None), *((where, 2) for where in DEVICES)])
def test_windows_cost_what_the_whole_costs(where: str, separator: int | None) -> None:
    """Judged window by window, and at once, and by the layers' own code."""
    data, judge = windows(separator=separator), learner(where)
    parts = [judge.evaluate(batch) for batch in data.batches(0)]
    at_once = judge.evaluate(whole(data))
    assert sum(part.total for part in parts) == pytest.approx(at_once.total, rel=1e-5)
    assert sum(part.total for part in [judge.evaluate(b) for b in data.batches(0)]) == pytest.approx(
        at_once.total, 1e-5
    )
    every, p = whole(data), {key: store.values() for key, store in initialise(NETWORK, 1).items()}
    y = every.features
    for coord, spec in NETWORK.layers.items():
        own = {key.partition("/")[2]: value for key, value in p.items() if key.startswith(f"{coord}/")}
        y, _ = oracle(spec).forward(own, y, memory=Memory(streams=STREAMS, resets=every.inputs_by_name["resets"]))
    told = CrossEntropy().terms(y.astype(np.float32), np.asarray(every.targets), every.mask)  # pyright: ignore[reportArgumentType]
    assert at_once.total == pytest.approx(told.total, rel=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["gpu", "reference"])
def test_devices_learn_the_same(where: str) -> None:
    data = windows(separator=2)
    here, there = learner("cpu"), learner(where)
    for batch in data.batches(0):
        mine, other = (one.step([batch], rate=0.5) for one in (here, there))
        assert other.tally.total == pytest.approx(mine.tally.total, rel=1e-4)
    for key, store in here.params().items():
        np.testing.assert_allclose(there.params()[key].values(), store.values(), rtol=0, atol=1e-4)
    for key, value in here.state.carried.items():
        np.testing.assert_allclose(there.state.carried[key], value, rtol=0, atol=1e-4)


def test_what_is_judged_between_updates_does_not_disturb_them() -> None:
    first, second, *_ = windows().batches(0)
    plain, judged = learner(), learner()
    for one in (plain, judged):
        one.step([first], rate=0.5)
    judged.evaluate(second)
    assert judged.step([second], rate=0.5).tally.total == plain.step([second], rate=0.5).tally.total
    fresh = learner(params=plain.params())
    begun = Batch(second.features, second.targets)
    assert fresh.evaluate(begun).total == pytest.approx(plain.evaluate(begun).total, rel=1e-6)
    assert fresh.evaluate(begun).total == pytest.approx(fresh.evaluate(begun).total, rel=1e-7)


@pytest.mark.thorough
def test_a_run_goes_on_in_the_middle_of_its_streams(tmp_path: Path) -> None:
    def go(config: TrainConfig, *, again: bool) -> Params:
        where = tmp_path / "run"
        return train(
            NETWORK, initialise(NETWORK, 1), windows(), config, checkpoints=where, resume=again, device=device("cpu")
        ).params

    go(replace(CONFIG, max_steps=4), again=False)
    resumed = go(CONFIG, again=True)
    straight = train(NETWORK, initialise(NETWORK, 1), windows(), CONFIG, device=device("cpu")).params
    for key, store in straight.items():
        np.testing.assert_array_equal(resumed[key].values(), store.values())


def test_a_fault_leaves_weights_and_streams() -> None:
    one, [first, second, *_] = learner(), windows().batches(0)
    one.step([first], rate=0.5)
    before = one.state
    report = one.step([second], rate=float("inf"))
    assert report.fault is not None
    for kept, now in ((before.masters, one.state.masters), (before.carried, one.state.carried)):
        for key, value in kept.items():
            np.testing.assert_array_equal(now[key], value)
    params = initialise(NETWORK, 1)
    values = params["1.0.0.0/0/core/w1"].values().copy()
    values[0] = np.nan
    bad = Params({**params, "1.0.0.0/0/core/w1": type(params["1.0.0.0/0/core/w1"]).from_array(values)})
    with pytest.raises(DivergedError, match=r"parameter 1\.0\.0\.0/0/core/w1 is not finite"):
        train(NETWORK, bad, windows(), CONFIG, device=device("cpu"))


def test_what_cannot_be_carried_is_refused() -> None:
    attends = stack(6, [MultiHeadAttention(embed_dim=6, num_heads=2)], embed=VOCABULARY, classes=VOCABULARY)
    with pytest.raises(UnsupportedError, match=r"multi_head_attention at 1\.0\.0\.0"):
        train(attends, initialise(attends), windows(), CONFIG, device=device("cpu"))
    rows = stack(6, [Dense(in_features=6, out_features=6)], classes=2)
    with pytest.raises(ShapeError, match="learns from sequences"):
        train(
            rows, initialise(rows), (np.zeros((4, 6), np.float32), np.zeros(4, np.int32)), CONFIG, device=device("cpu")
        )
    one, [first, *_] = learner(), windows().batches(0)
    odd = Batch({"input": first.features, "resets": np.full((STREAMS, LENGTH), 0.5)}, first.targets)
    with pytest.raises(ShapeError, match="resets"):
        one.step([odd], rate=0.1)
    one.step([first], rate=0.1)
    state = one.state
    carried = {key: value[:, :1] for key, value in state.carried.items()}
    with pytest.raises(CheckpointError, match="stream states of the checkpoint do not match this network"):
        learner().restore(type(state)(state.updates, state.masters, state.slots, state.buffers, carried))
