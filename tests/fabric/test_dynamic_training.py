"""Training while nodes of a fabric come and go: windows, masks between them, weights that stand still, checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.fabric.dynamic_cases import CASES, cut, given, left
from tests.fabric.test_dynamic_streams import params_of
from tests.fabric.test_layer import alone
from volumetric import fabric
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.fabric.layer.cell_populations import OutPort
from volumetric.fabric.layer.node_entries import param_entries
from volumetric.fabric.layer.node_sets import XBand
from volumetric.graph.program_cache import ProgramCache
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.weight_store import Params
from volumetric.train import MSE, SGD, AdamW, Backprop, Batch, Systolic, TrainConfig, evaluate, train
from volumetric.train.learner import LearnerOptions
from volumetric.train.learner_opening import bind, open_learner

SPEC, GONE = CASES["mixed"]
NETWORK = alone(SPEC)
P, X = given(SPEC, 12)
PARAMS = params_of(P)
Y = np.random.default_rng(2).standard_normal((2, 12, 3)).astype(np.float32)
X = X.astype(np.float32)
ADAM = AdamW(lr=1e-2, weight_decay=0.1)


def batch(first: int, absent: Any = None) -> Batch:
    """Three rows of both streams, which go on from those before."""
    resets = np.zeros((2, 3), np.float32)
    resets[:, 0] = first == 0
    now = slice(first, first + 3)
    return Batch({"input": X[:, now], "resets": resets}, Y[:, now], absent=absent)


def learner(way: str, *, carry: bool = True, network: Any = NETWORK, params: Params = PARAMS, **options: Any) -> Any:
    options = {"loss": MSE(), "optimiser": ADAM, "mode": Backprop(carry=carry), **options}
    return bind(open_learner(device(way)), network, params, LearnerOptions(**options))


def moved(before: Params, after: Params, key: str) -> np.ndarray:
    return after[key].values() != before[key].values()


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["reference", "cpu"])
def test_weights_of_masked_nodes_stand_still_and_nothing_is_compiled(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = learner(way)
    of.step([batch(0)], rate=1e-2)
    before = of.params()
    slots = of.state.slots
    made: list[Any] = []
    get = ProgramCache.get
    monkeypatch.setattr(
        ProgramCache, "get", lambda self, name, make: get(self, name, lambda: made.append(name) or make())
    )
    of.step([batch(3, GONE)], rate=1e-2)
    of.step([batch(6)], rate=1e-2)
    after, now = of.params(), of.state.slots
    for name, entries in param_entries(SPEC).items():
        key = f"0.0.0.0/{name}"
        if name == "living":
            continue
        still = np.broadcast_to(
            entries.mask(entries.entries_of(np.array(GONE)), before[key].values()), before[key].shape
        )
        assert not moved(before, after, key)[still].any()
        for slot, arrays in slots.items():
            np.testing.assert_array_equal(now[slot][key][still], arrays[key][still])
        assert moved(before, after, key)[~still].mean() > 0.5
    assert fabric.living(NETWORK, after).tolist() == [n for n in range(12) if n not in GONE]
    of.step([batch(9, ())], rate=1e-2)
    woken = of.params()
    assert moved(after, woken, "0.0.0.0/slot").mean() > 0.9
    assert made == []


@pytest.mark.thorough
def test_windows_without_nodes_are_those_of_the_fabric_without_them() -> None:
    small, few = alone(cut(SPEC, GONE)), params_of(left(SPEC, P, GONE))
    whole, part = learner("cpu"), learner("cpu", network=small, params=few)
    for first in (0, 3, 6):
        found, want = whole.step([batch(first, GONE)], rate=1e-2), part.step([batch(first)], rate=1e-2)
        assert found.tally.total == pytest.approx(want.tally.total, rel=1e-5)
    values = {key[8:]: store.values() for key, store in whole.params().items()}
    for name, value in left(SPEC, values, GONE).items():
        np.testing.assert_allclose(value, part.params()[f"0.0.0.0/{name}"].values(), atol=2e-5)


@pytest.mark.thorough
def test_a_checkpoint_goes_on_in_the_middle(tmp_path: Path) -> None:
    absent = (None, GONE, (5,), ())

    def windows(epoch: int) -> list[Batch]:
        return [batch(3 * n, nodes) for n, nodes in enumerate(absent)]

    config = TrainConfig(loss=MSE(), optimiser=ADAM, mode=Backprop(carry=True), epochs=1)
    on = device("cpu")
    whole = train(NETWORK, PARAMS, windows, config, device=on)
    first = replace(config, max_steps=2, checkpoint_every=2)
    train(NETWORK, PARAMS, windows, first, device=on, checkpoints=tmp_path)
    rest = train(
        NETWORK, PARAMS, windows, replace(config, checkpoint_every=2), device=on, checkpoints=tmp_path, resume=True
    )
    for key, store in whole.params.items():
        np.testing.assert_array_equal(rest.params[key].values(), store.values())


def test_judging_masks_for_its_batches_alone() -> None:
    of = learner("cpu")
    plain, some = of.evaluate(batch(0)).total, of.evaluate(batch(0, GONE)).total
    assert abs(plain - some) > 1e-3
    assert of.evaluate(batch(0)).total == plain
    masked = fabric.mask(NETWORK, PARAMS, GONE)
    rows = replace(batch(0), inputs=X[:, :3])
    found = evaluate(NETWORK, masked, lambda _: [rows], TrainConfig(loss=MSE()), device=device("cpu"))
    assert found.loss == pytest.approx(some / (2 * 3 * 3), rel=1e-5)
    both = evaluate(
        NETWORK,
        PARAMS,
        lambda _: [replace(rows, absent={"0.0.0.0": GONE})],
        TrainConfig(loss=MSE()),
        device=device("cpu"),
    )
    assert both.loss == pytest.approx(found.loss, rel=1e-6)


def test_a_fault_leaves_the_population() -> None:
    of = learner("cpu", optimiser=SGD())
    before = of.state
    odd = replace(batch(0, GONE), inputs={**batch(0).inputs_by_name, "input": np.full((2, 3, 3), np.nan, np.float32)})
    assert of.step([odd], rate=1e-2).fault is not None
    after = of.state
    for arrays, others in ((before.masters, after.masters), (before.buffers, after.buffers)):
        for key, value in arrays.items():
            np.testing.assert_array_equal(others[key], value)


def test_nodes_that_stay_masked_stand_still() -> None:
    masked = fabric.mask(NETWORK, PARAMS, GONE)
    of = learner("cpu", params=masked, frozen=("*living",))
    of.step([batch(0)], rate=1e-2)
    order = SPEC.facts.order
    np.testing.assert_array_equal(moved(masked, of.params(), "0.0.0.0/slot").any(1), ~np.isin(order, GONE))


def test_what_fabrics_share_stands_still_where_neither_lives() -> None:
    spec, _ = CASES["plain"]
    spec = replace(spec, outputs=(OutPort("y", XBand("high"), 3),))
    links = [
        Link(kind="shared", source=Coord(0), target=Coord(0, 0, 1), param=name, source_param=name)
        for name in ("slot", "readout.weight")
    ]
    layers = {Coord(0): spec, Coord(0, 0, 1): spec}
    network = Network(grid=Grid(1, 1, 2), layers=layers, links=tuple(links), input_shape=(3,), input_dtype="float32")
    of = learner("cpu", network=network, params=initialise(network))
    x, y = X[:, :3], Y[:, :3]
    before = of.params()
    of.step([Batch({"input": x}, y, absent={"0.0.0.0": (4, 6), "0.0.1.0": (6, 7)})], rate=1e-2)
    still = ~moved(before, of.params(), "0.0.0.0/slot").any(1)
    assert spec.facts.order[still].tolist() == [6]


def test_what_cannot_be_masked_is_told() -> None:
    of = learner("cpu")
    asked: list[tuple[Any, str]] = [
        (lambda: of.step([batch(0, (40,))], rate=1e-2), "the fabric has no node 40"),
        (lambda: of.step([batch(0, {"0.0.0.1": ()})], rate=1e-2), "there is no fabric at"),
        (lambda: of.step([batch(0, (4,)), batch(3, (5,))], rate=1e-2), "batches of one update mask different nodes"),
        (lambda: learner("cpu", frozen=("*living",)).step([batch(0, (4,))], rate=1e-2), "cannot be masked here"),
    ]
    still = learner(
        "cpu", network=alone(cut(SPEC, ())), params=params_of({k: v for k, v in P.items() if k != "living"})
    )
    asked.append((lambda: still.step([batch(0, (4,))], rate=1e-2), "no fabric of the network supports masking"))
    for change, match in asked:
        with pytest.raises(SpecError, match=match):
            change()


def test_windows_of_ticks_mask_what_their_batch_says() -> None:
    spec, gone = CASES["plain"]
    p, x = given(spec, 6)
    params = params_of(p)
    mode = Systolic(window=6)
    of = learner("cpu", network=Clocked(network=alone(spec)), params=params, mode=mode)
    whole = Batch(x.astype(np.float32), np.zeros((2, 6, 2), np.float32), absent=gone)
    before = of.params()
    assert all(of.step([window], rate=1e-2).fault is None for window in of.windows(whole))
    order = spec.facts.order
    np.testing.assert_array_equal(moved(before, of.params(), "0.0.0.0/slot").any(1), ~np.isin(order, gone))
