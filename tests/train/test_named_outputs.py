"""Several outputs learn at once: gradients are those of the weighted sum of their losses, in every mode."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import FAST, device
from tests.oracles.learner import NumpyLearner
from volumetric.analysis import predict
from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.layers import RNN, Dense, Discrete
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.weight_store import WeightStore
from volumetric.train import (
    MSE,
    SGD,
    Adam,
    AdamW,
    ArrayData,
    Batch,
    CrossEntropy,
    DivergedError,
    EpochEvent,
    GraphLoss,
    Huber,
    LearnerOptions,
    LearnerState,
    LowRank,
    TargetPropagation,
    TrainConfig,
    evaluate,
    train,
)
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.history import CsvReporter, JsonlReporter
from volumetric.train.output_losses import Losses, Tally, Terms

RNG = np.random.default_rng(3)
LOSSES: dict[str, Any] = {
    "output": CrossEntropy(),
    "value": Huber(delta=0.5),
    "hidden": MSE(reduction="sum"),
    "twin": MSE(),
}
WEIGHTS = {"value": 0.3, "hidden": 0.05}


def heads(first: Any = None) -> Network:
    """Two layers, and two heads on the second one; what that gives is an output too, by two names."""
    return Network(
        grid=Grid(4),
        layers={
            Coord(0): first or Dense(in_features=4, out_features=6, activation="tanh"),
            Coord(1): Dense(in_features=6, out_features=5, activation="tanh"),
            Coord(2): Dense(in_features=5, out_features=3),
            Coord(3): Dense(in_features=5, out_features=2),
        },
        links=(Link(kind="activation", source=Coord(1), target=Coord(3), combine="replace"),),
        input_shape=(4,),
        input_dtype="float32",
        outputs={"output": Coord(2), "value": Coord(3), "hidden": Coord(1), "twin": Coord(1)},
    )


def batch(*lead: int, names: tuple[str, ...] = tuple(LOSSES)) -> Batch:
    ids = RNG.integers(0, 3, lead)
    ids[0] = -100
    targets = {"output": ids, "value": RNG.standard_normal((*lead, 2)).astype(np.float32)}
    targets |= {name: RNG.standard_normal((*lead, 5)).astype(np.float32) for name in ("hidden", "twin")}
    masks = {"value": RNG.integers(0, 2, lead) + 0.25, "hidden": RNG.random(lead[:1])}
    x = RNG.standard_normal((*lead, 4)).astype(np.float32)
    given = {name: array for name, array in masks.items() if name in names}
    return Batch(x, {name: targets[name] for name in names}, given or None)


def options(**more: Any) -> LearnerOptions:
    return LearnerOptions(**{"loss": LOSSES, "loss_weights": WEIGHTS, "optimiser": SGD(lr=1.0), **more})


@pytest.mark.parametrize("first", [Dense(in_features=4, out_features=6), RNN(input_size=4, hidden_size=6)])
def test_gradients_are_those_of_the_weighted_sum(first: Any) -> None:
    network = heads(first)
    params, given = initialise(network, 1), batch(*((7,) if isinstance(first, Dense) else (3, 4)))
    reference = NumpyLearner(network, params, options(), np.float64)
    graph = DeviceLearner(network, params, options(), NumpyGraphs(np.float64))
    before, losses = reference.state, options().losses
    way = {key: RNG.standard_normal(w.shape) for key, w in before.masters.items()}
    values = []
    for far in (1e-5, -1e-5):
        moved = {key: w + far * way[key] for key, w in before.masters.items()}
        reference.restore(LearnerState(0, moved, before.slots))
        values.append(losses.value(reference.evaluate(given)))
    reference.restore(before)
    assert reference.step([given], rate=1.0).tally.terms.keys() == LOSSES.keys()
    graph.step([given], rate=1.0)
    slope = sum(float(((w - reference.state.masters[key]) * way[key]).sum()) for key, w in before.masters.items())
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-6)
    for key, w in reference.state.masters.items():  # graphs take factors as float32
        np.testing.assert_allclose(graph.state.masters[key], w, rtol=0, atol=2e-7, err_msg=key)


def test_a_loss_alone_by_name_is_the_loss() -> None:
    network = heads()
    params, given = initialise(network, 1), batch(6, names=("output",))
    plain = Batch(given.inputs, given.targets["output"])  # pyright: ignore[reportArgumentType]  (by output)
    for kind in (NumpyLearner, lambda *args: DeviceLearner(args[0], args[1], args[2], NumpyGraphs())):
        named = kind(network, params, options(loss={"output": CrossEntropy()}, loss_weights={"output": 1.0}))
        other = kind(network, params, options(loss=CrossEntropy(), loss_weights={}))
        assert named.step([given], rate=0.5) == other.step([plain], rate=0.5)
        for key, w in other.state.masters.items():
            assert np.array_equal(named.state.masters[key], w)
        assert "3.0.0.0/weight" not in other.state.masters  # nothing of another head is kept


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_devices_learn_alike_over_batches_with_other_outputs(name: str) -> None:
    network = heads()
    params = initialise(network, 1)
    made = options(optimiser=AdamW(lr=0.1), clip=0.5)
    one = NumpyLearner(network, params, made)
    other = DeviceLearner(network, params, made, device(name).graphs())
    parts = [batch(5, names=names) for names in (("output",), ("value", "output"), ("twin",))]
    for group in (parts[1:2], parts[::2]) if name == "gpu" else (parts[:1], parts[1:2], parts[::2], parts):
        want, found = one.step(group, rate=0.1), other.step(group, rate=0.1)
        assert found.tally.terms.keys() == want.tally.terms.keys()
        for key, terms in want.tally.terms.items():
            assert found.tally.terms[key].count == pytest.approx(terms.count)
            assert found.tally.terms[key].total == pytest.approx(terms.total, rel=1e-4)
        assert found.gradient_norm == pytest.approx(want.gradient_norm, rel=1e-4)
        for key, w in one.state.masters.items():
            np.testing.assert_allclose(other.state.masters[key], w, rtol=0, atol=2e-5, err_msg=key)
    if name == "gpu":
        return  # which takes long for each pipeline
    (tally, outputs), (told, found) = one.measure(parts[1]), other.measure(parts[1])
    assert outputs.keys() == found.keys() == {"output", "value"}
    assert told.total == pytest.approx(tally.total, rel=1e-4)
    for key, y in outputs.items():
        np.testing.assert_allclose(found[key], y, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_heads_without_targets_are_not_computed(name: str) -> None:
    network = heads()
    params = initialise(network, 1)
    odd = {key: store.values() * np.float32(np.nan if key.startswith("3.") else 1) for key, store in params.items()}
    broken = Params({key: WeightStore.from_array(w) for key, w in odd.items()})
    losses = {"output": CrossEntropy(), "value": MSE()}
    config = TrainConfig(loss=losses, optimiser=AdamW(lr=0.1), epochs=2)
    parts = [batch(5, names=("output",)) for _ in range(2)]
    result = train(network, broken, lambda epoch: parts, config, device=name)
    assert np.isnan(result.params["3.0.0.0/weight"].values()).all()
    assert [event.losses.keys() for event in result.history] == [{"output"}] * 2
    kept = train(network, params, lambda epoch: parts, config, device=name).params  # decay does not touch them either
    for key, store in params.items():
        assert np.array_equal(kept[key].values(), store.values()) == key.startswith("3."), key
    alone = train(network, broken, lambda epoch: parts, dataclasses.replace(config, loss=CrossEntropy()), device=name)
    for key in ("0.0.0.0/weight", "2.0.0.0/weight"):
        assert np.array_equal(alone.params[key].values(), kept[key].values())
    with pytest.raises(DivergedError, match=r"parameter 3\.0\.0\.0/weight"):
        train(network, broken, lambda epoch: [batch(5, names=("value",))], config, device=name)


def samples(count: int) -> tuple[Array, dict[str, Array]]:
    x = np.random.default_rng(7).standard_normal((count, 4)).astype(np.float32)
    return x, {"output": x[:, :3].argmax(1), "value": x[:, :2] * x[:, 2:]}


def test_history_tells_of_every_output(tmp_path: Path) -> None:
    network, (x, y) = heads(), samples(64)
    losses = {"output": CrossEntropy(), "value": MSE()}
    config = TrainConfig(loss=losses, optimiser=Adam(lr=0.02), loss_weights={"value": 2.0}, epochs=6, accuracy=True)
    told: list[Any] = []
    files = [JsonlReporter(tmp_path / "a.jsonl"), CsvReporter(tmp_path / "a.csv")]
    result = train(network, initialise(network), (x, y), config, validation=0.25, reporters=[told.append, *files])
    last = result.history[-1]
    assert isinstance(last, EpochEvent)
    assert last.losses.keys() == last.validation_losses.keys() == {"output", "value"}
    assert last.loss == pytest.approx(last.losses["output"] + 2 * last.losses["value"])
    assert all(last.losses[name] < result.history[0].losses[name] for name in losses)
    assert last.accuracies == {"output": last.accuracy}  # values are no classes
    step = next(event for event in told if event.event == "step")
    assert step.loss == pytest.approx(step.losses["output"] + 2 * step.losses["value"])
    assert "value" in str(step)
    assert '"losses": {"output"' in (tmp_path / "a.jsonl").read_text()
    data = ArrayData(inputs=x, targets=y, batch_size=32, seed=0)
    found = evaluate(network, result.best, data.split(0.25)[1], config, device="cpu")
    assert found.loss == pytest.approx(min(e.validation_loss for e in result.history if e.validation_loss is not None))
    assert found.accuracies["output"] == found.accuracy


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    network, (x, y) = heads(), samples(24)
    config = TrainConfig(loss={"value": MSE(), "output": CrossEntropy()}, loss_weights={"value": 2.0}, epochs=3)
    data = ArrayData(inputs=x, targets=y, batch_size=8)
    whole = train(network, initialise(network), data, config, device="reference")
    part = dataclasses.replace(config, max_steps=4)
    train(network, initialise(network), data, part, checkpoints=tmp_path, device="reference")
    again = train(network, initialise(network), data, config, checkpoints=tmp_path, resume=True, device="reference")
    assert again.history == whole.history
    for key, store in whole.params.items():
        assert np.array_equal(again.params[key].values(), store.values())


def test_targets_along_the_gradient_teach_what_backprop_does() -> None:
    network = heads()
    params, given = initialise(network, 1), batch(6)
    mode = TargetPropagation(method="gradient", gate=0.0, clamp=1e9)
    slow = {key: w * np.float32(1) for key, w in NumpyLearner(network, params, options()).state.masters.items()}
    by_targets = DeviceLearner(network, params, options(mode=mode), NumpyGraphs(np.float64))
    plain = DeviceLearner(network, params, options(), NumpyGraphs(np.float64))
    report, want = by_targets.step([given], rate=1.0), plain.step([given], rate=1.0)
    assert report.tally == want.tally
    budgets = {layer.where: 0.5 + 0.5 * layer.budget for layer in report.layers}
    for key, w in plain.state.masters.items():
        pace = budgets[key.split("/")[0]]
        found = by_targets.state.masters[key]
        np.testing.assert_allclose(found - slow[key], pace * (w - slow[key]), rtol=0, atol=1e-6, err_msg=key)


def test_difference_targets_teach_several_heads() -> None:
    signs = dataclasses.replace(
        heads(),
        grid=Grid(5),
        layers={**heads().layers, Coord(1): Discrete(), Coord(2): Dense(in_features=6, out_features=3),
                Coord(3): Dense(in_features=6, out_features=2)},
        outputs={"output": Coord(2), "value": Coord(3)},
    )  # fmt: skip
    x, y = samples(96)
    losses = {"output": CrossEntropy(), "value": MSE()}
    mode = TargetPropagation(gradient_scale=0.5)
    config = TrainConfig(loss=losses, mode=mode, optimiser=Adam(lr=0.01), epochs=8)
    history = train(signs, initialise(signs), (x, y), config, device="reference").history
    assert all(history[-1].losses[name] < 0.9 * history[0].losses[name] for name in losses)
    learner = DeviceLearner(signs, initialise(signs), config.learner, NumpyGraphs())
    with pytest.raises(
        ShapeError, match="no targets of output 'value', but mode 'target' needs targets of all outputs with losses"
    ):
        learner.step([Batch(x, {"output": y["output"]})], rate=0.1)


def test_overlays_learn_by_several_outputs() -> None:
    network, given = heads(), batch(6)
    params, made = initialise(network, 1), options(overlay=LowRank(rank=2, targets=("*/weight",)))
    one, other = NumpyLearner(network, params, made), DeviceLearner(network, params, made, NumpyGraphs())
    for group in ([given], [batch(6, names=("value",))]):
        one.step(group, rate=0.1)
        other.step(group, rate=0.1)
    for key, w in one.state.masters.items():
        np.testing.assert_allclose(other.state.masters[key], w, rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("lead", [(300,), (5, 4)])
def test_outputs_are_predicted_by_name(lead: tuple[int, ...]) -> None:
    network = heads(RNN(input_size=4, hidden_size=6) if len(lead) > 1 else None)
    params, given = initialise(network, 1), batch(*lead)
    wanted = NumpyLearner(network, params, options()).measure(given)[1]
    found = predict(network, params, given.inputs, device="cpu", outputs=["value", "hidden"])
    assert [*found] == ["value", "hidden"]
    for name, y in found.items():
        np.testing.assert_allclose(y, wanted[name], rtol=0, atol=1e-5)
    alone = predict(network, params, given.inputs, device="reference")
    np.testing.assert_allclose(alone, wanted["output"], rtol=0, atol=1e-5)
    for wrong in ("value", [], ["colour"]):
        with pytest.raises(SpecError):
            predict(network, params, given.inputs, device="reference", outputs=wrong)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"loss": {}}, "loss: no loss is set"),
        ({"loss": {"output": 3}}, "expected a (loss|name or a table with a kind), got 3"),
        ({"loss_weights": {"colour": 1.0}}, "loss_weights: output 'colour' has no loss"),
        ({"loss_weights": {"value": -1.0}}, "weight of output 'value' must be 0 or more, got -1.0"),
        ({"loss_weights": {"value": float("nan")}}, "must be 0 or more, got nan"),
        ({"loss_weights": dict.fromkeys(LOSSES, 0.0)}, "no loss has a weight above 0"),
    ],
)
def test_losses_that_make_no_sense_are_refused(change: dict[str, Any], match: str) -> None:
    for kind in (options, lambda **more: TrainConfig(**{"loss": LOSSES, **more})):
        with pytest.raises(SpecError, match=match):
            kind(**change)


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_data_that_do_not_fit_the_losses_are_refused(name: str) -> None:
    network, (x, y) = heads(), samples(8)
    params, losses = initialise(network), {"output": CrossEntropy(), "value": MSE()}

    def run(targets: Any, loss: Any = losses, mask: Any = None) -> None:
        train(network, params, (x, targets, mask), TrainConfig(loss=loss), device=name)

    with pytest.raises(SpecError, match="the network has no output 'colour'") as caught:
        run(y, {"colour": MSE()})
    assert caught.value.hint == "its outputs are 'output', 'value', 'hidden', 'twin'"
    with pytest.raises(
        ShapeError, match="losses are set for the outputs 'output', 'value', but the targets have no output name"
    ):
        run(y["output"])
    with pytest.raises(ShapeError, match="targets of output 'colour' have no loss"):
        run({**y, "colour": y["value"]})
    with pytest.raises(ShapeError, match="the mask of output 'colour' has no targets"):
        run(y, mask={"colour": np.ones(8)})
    with pytest.raises(SpecError, match="output 'value' has a loss, but the data have no targets for it"):
        run({"output": y["output"]})
    with pytest.raises(ShapeError, match=r"output 'value': mse: the output has shape \(8, 2\), the target \(8, 1\)"):
        run({**y, "value": y["value"][:, :1]})
    with pytest.raises(
        ShapeError,
        match=r"the same number of samples in inputs, targets and mask, got inputs 8, targets 8, targets\.value 7",
    ):
        run({**y, "value": y["value"][:7]})
    with pytest.raises(ShapeError, match="a batch needs targets, got none"):
        run({})
    own = GraphLoss(function=lambda work, output, target: work.input("more", (1,)))
    with pytest.raises(ShapeError, match="output 'value': graph: the loss's terms"):
        run(y, {**losses, "value": own})
    run(y, mask=np.r_[np.zeros(4), np.ones(4)])  # one mask is that of all outputs
    with pytest.raises(SpecError, match="the loss has no counted terms"):
        run(y, mask=np.zeros(8))


def test_every_loss_that_has_terms_is_told() -> None:
    losses = Losses.from_losses({"a": MSE(), "b": MSE(), "c": MSE()}, {"b": 3.0})
    tally = Tally({"a": Terms(0.5, 1.0), "b": Terms(6.0, 2.0), "c": Terms(0.0, 0.0)})
    assert losses.each(tally) == {"a": 0.5, "b": 3.0}
