"""Methods are compared from the same start, and the best one is named by accuracy, then by loss."""

from __future__ import annotations

import json

import numpy as np
import pytest

from volumetric.analysis import accuracy, predict
from volumetric.base.errors import SpecError
from volumetric.builders import sequential
from volumetric.network import initialise
from volumetric.train import SGD, AdamW, ArrayData, CrossEntropy, TrainConfig, train
from volumetric.train.method_comparison import Comparison, Method, Metrics, compare
from volumetric.train.problems import spirals


def metrics(accuracy: float, loss: float) -> Metrics:
    return Metrics(steps=1, accuracy=accuracy, loss=loss, seconds=1.0, to_target=None, milestones={})


@pytest.mark.thorough
def test_methods_learn_from_the_same_weights_and_the_better_one_is_named() -> None:
    problem = spirals(samples=300, noise=0.02)
    network = sequential(2, 3, hidden=(32, 32), activation="tanh")
    params = initialise(network)
    data = ArrayData(inputs=problem.inputs[60:], targets=problem.targets[60:])
    test = (problem.inputs[:60], problem.targets[:60])
    adam = TrainConfig(loss=CrossEntropy(), optimiser=AdamW(lr=0.02), epochs=30)
    methods = {
        "adam": Method(config=adam),
        "slow": Method(config=TrainConfig(loss=CrossEntropy(), optimiser=SGD(lr=0.001), epochs=2)),
        "broken": Method(config=TrainConfig(loss=CrossEntropy(), optimiser=SGD(lr=1e300), epochs=2)),
    }
    found = compare(network, params, data, methods, test, target=0.8)
    best = found.results["adam"]
    assert found.best == "adam"
    assert best.steps == 30 * 8
    assert best.accuracy == accuracy(predict(network, train(network, params, data, adam).params, test[0]), test[1])
    assert best.accuracy > 0.9
    assert best.to_target is not None
    assert list(best.milestones)[:8] == list(range(10, 81, 10))
    assert list(best.milestones.values()) == sorted(best.milestones.values())
    assert best.milestones[80] == best.to_target <= best.seconds
    assert (found.results["slow"].to_target, found.results["slow"].fault) == (None, None)
    broken = found.results["broken"]
    assert broken.fault is not None
    assert "is not finite" in broken.fault
    assert np.isnan(broken.loss)
    told = json.loads(json.dumps(found.describe(), allow_nan=False))
    assert told["best"] == "adam"
    assert told["methods"]["broken"]["loss"] is None


def test_a_point_of_accuracy_decides_before_the_loss() -> None:
    assert Comparison(results={"a": metrics(0.90, 0.1), "b": metrics(0.92, 0.9)}).best == "b"
    assert Comparison(results={"a": metrics(0.915, 0.1), "b": metrics(0.92, 0.9)}).best == "a"
    assert Comparison(results={"a": metrics(0.92, float("nan")), "b": metrics(0.915, 5.0)}).best == "b"


def test_nothing_to_compare_is_refused() -> None:
    network = sequential(2, 3)
    test = (np.zeros((1, 2), np.float32), np.zeros(1, np.int64))
    with pytest.raises(SpecError, match="no method"):
        compare(network, initialise(network), test, {}, test)
    with pytest.raises(SpecError, match="target"):
        compare(network, initialise(network), test, {"a": Method(config=TrainConfig())}, test, target=2)
