"""Losses of one's own: the same as their built-in twins on every device, and what is no loss is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES
from tests.layers.test_vjp import TOLERANCE, differences
from tests.train.test_device_learner import LLAMA, follow, pair, sentences
from volumetric.base.errors import ShapeError, SpecError, VolumetricError
from volumetric.builders import sequential
from volumetric.graph import GraphBuilder
from volumetric.network import initialise
from volumetric.train import MSE, SGD, Batch, CrossEntropy, GraphLoss, TrainConfig, train
from volumetric.train.coercion import as_loss

draw = np.random.default_rng(0)
Y, T = draw.standard_normal((5, 3)), draw.standard_normal((5, 3))
ROWS = np.array([1, 0, 0.5, 2, 1])


def squared(work: GraphBuilder, y: int, t: int) -> int:
    return work.unary(work.binary("sub", y, t), "square")


def pinball(work: GraphBuilder, y: int, t: int) -> int:
    gap = work.binary("sub", t, y)
    return work.binary("max", work.affine(gap, 0.9), work.affine(gap, -0.1))


def of_traced(work: GraphBuilder, y: Any, t: Any) -> Any:
    """The form with a builder computes in plain arithmetic, too, also on what the builder returns."""
    return (work.unary(y, "tanh") - 2 * t) ** 2 / (1 + abs(y))


def of_rows(work: GraphBuilder, y: int, t: int) -> int:
    return work.reduce(squared(work, y, t), "sum", [len(work.shape(y)) - 1])


def of_classes(work: GraphBuilder, y: int, t: int) -> int:
    *lead, classes = work.shape(y)
    y = work.reshape(y, [int(np.prod(lead)), classes])
    ids = work.reshape(t, [int(np.prod(work.shape(t)))])
    rows = work.reshape(work.gather_rows(work.constant(np.eye(classes)), ids), work.shape(y))
    chosen = work.binary("mul", work.softmax(y), rows)
    values = work.unary(work.unary(work.reduce(chosen, "sum", [1]), "log"), "neg")
    return work.reshape(values, lead)


@pytest.mark.parametrize("mask", [None, ROWS, ROWS[:, None] * np.ones(3)], ids=["all", "rows", "elements"])
@pytest.mark.parametrize("function", [squared, pinball])
def test_gradient_equals_central_differences(function: Any, mask: np.ndarray | None) -> None:
    loss, output = GraphLoss(function=function), Y.copy()
    _, got = loss.value_and_gradient(output, T, mask)
    want = differences(lambda: loss.value_and_gradient(output, T, mask)[0], output)
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE)


def test_values_are_those_of_the_twin() -> None:
    for mask in (None, ROWS, ROWS > 0.5):
        mine, theirs = (loss.terms(Y, T, mask) for loss in (GraphLoss(function=squared), MSE()))
        assert (mine.total, mine.count) == pytest.approx((theirs.total, theirs.count), rel=1e-12)
        np.testing.assert_allclose(mine.gradient, theirs.gradient, rtol=1e-12)
    rows = GraphLoss(function=of_rows).terms(Y, T, ROWS)
    assert (rows.total, rows.count) == pytest.approx((MSE().terms(Y, T, ROWS).total, ROWS.sum()), rel=1e-12)
    assert GraphLoss(function=pinball).terms(np.zeros((2, 1)), np.array([[1.0], [-1.0]])).total == pytest.approx(1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_every_device_trains_with_it(name: str) -> None:
    network = sequential(4, 2, hidden=(5,), activation="tanh")
    x, t = (draw.standard_normal((16, n)).astype(np.float32) for n in (4, 2))
    rows = (np.arange(16) % 3).astype(np.float32)
    for function in (pinball, of_rows):
        for mask in (None, rows):
            learners = pair(name, network, loss=GraphLoss(function=function), optimiser=SGD())
            follow(learners, [Batch(x, t, mask)], updates=2, rate=1e-2)
    follow(pair(name, LLAMA, loss=GraphLoss(function=of_classes), optimiser=SGD()), [sentences()], updates=2)


def test_an_update_is_the_twin_s() -> None:
    mine, theirs = (pair("cpu", LLAMA, loss=loss)[1] for loss in (GraphLoss(function=of_classes), CrossEntropy()))
    for learner in (mine, theirs):
        learner.step([sentences()], rate=0.1)
    for key, store in mine.params().items():
        np.testing.assert_allclose(store.values(), theirs.params()[key].values(), atol=1e-4)


def test_checkpoints_know_the_function_by_name() -> None:
    assert TrainConfig(loss=GraphLoss(function=pinball)).describe()["loss"] == {
        "kind": "graph",
        "reduction": "mean",
        "function": f"{__name__}:pinball",
    }


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda work, y, t: None, SpecError, "returned None, not a tensor"),
        (lambda work, y, t: work.reduce(y, "sum", [0, 1]), ShapeError, r"terms are float32 \[1, 1\]"),
        (lambda work, y, t: t, SpecError, "do not depend on the output"),
        (lambda work, y, t: work.binary("sub", y, work.constant(np.ones((7, 7)))), ShapeError, "7"),
    ],
    ids=["nothing", "summed", "targets alone", "shapes"],
)
def test_what_is_no_loss_is_refused(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GraphLoss(function=function).terms(Y, T)
    network = sequential(3, 3)
    config = TrainConfig(loss=GraphLoss(function=function))
    with pytest.raises(error, match=message):
        train(network, initialise(network), (Y.astype("f4"), T.astype("f4")), config)


def test_a_loss_without_a_function_is_refused() -> None:
    with pytest.raises(SpecError, match="needs a function"):
        GraphLoss(function="mse")  # pyright: ignore[reportArgumentType]  (what a caller without a type checker may write)


def plain_squared(p: Any, t: Any) -> Any:
    return (p - t) ** 2


def plain_pinball(p: Any, t: Any) -> Any:
    gap = t - p
    return np.maximum(0.9 * gap, -0.1 * gap)


def plain_of_rows(p: Any, t: Any) -> Any:
    return ((p - t) ** 2).sum(axis=-1)


def everything(p: Any, t: Any) -> Any:
    far = np.where(p > t, np.exp(-np.abs(p - t)), 1 / (1 + (p - t) ** 2)) + (p <= 0) * p**3 - (t >= p) / 2
    return (
        far + np.sqrt(p**2 + 1) + np.log1p(np.square(t)) * np.tanh(p).clip(-0.5, 0.5) + (p**2 + 1) ** -1.5 + 2 / (p + 9)
    )


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_plain_arithmetic_is_the_graph_that_it_stands_for(name: str) -> None:
    network = sequential(4, 2, hidden=(5,), activation="tanh")
    x, t = (draw.standard_normal((16, n)).astype(np.float32) for n in (4, 2))
    rows = (np.arange(16) % 3).astype(np.float32)
    for plain, graph in ((plain_squared, squared), (plain_pinball, pinball), (plain_of_rows, of_rows)):
        mine, theirs = (pair(name, network, loss=GraphLoss(function=f), optimiser=SGD())[1] for f in (plain, graph))
        for learner in (mine, theirs):
            learner.step([Batch(x, t, rows)], rate=0.1)
        for key, store in mine.params().items():
            np.testing.assert_allclose(store.values(), theirs.params()[key].values(), atol=1e-6)


def test_plain_arithmetic_means_what_numpy_means() -> None:
    loss, y = GraphLoss(function=everything), np.array([[0.3, -0.4, 2.0], [1.0, -2.0, 0.5]])
    t = np.array([[0.1, 0.4, -1.0], [1.5, -3.0, 0.25]])
    value, gradient = loss.value_and_gradient(y, t)
    assert value == pytest.approx(everything(y, t).mean(), rel=1e-6)
    want = differences(lambda: float(everything(y, t).mean()), y)
    np.testing.assert_allclose(gradient, want, atol=1e-6)


def test_targets_of_integers_are_numbers_to_plain_arithmetic() -> None:
    terms = GraphLoss(function=plain_squared).terms(np.zeros((2, 1)), np.array([[1], [2]]))
    assert terms.total == 5


def test_the_two_forms_may_be_mixed() -> None:
    want = (np.tanh(Y) - 2 * T) ** 2 / (1 + abs(Y))
    assert GraphLoss(function=of_traced).terms(Y, T).total == pytest.approx(want.sum(), rel=1e-6)


def raising(p: Any, t: Any) -> Any:
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("function", "message", "hint"),
    [
        (lambda: 0, "takes 0 arguments", "f(prediction, target)"),
        (lambda p, t, w, v: 0, "takes 4 arguments", "f(work, output, target)"),
        (raising, "raising raised RuntimeError: not today (test_own_loss.py, line", "f(work, output, target)"),
        (lambda work, y, t: work.exp(y), "no attribute 'exp'", "work.unary(x, name)"),
        (lambda p, t: p.cuda(), "no attribute 'cuda'", "f(prediction, target)"),
        (lambda p, t: np.fft.fft(p), "fft", "maximum"),
        (lambda p, t: max(t, p), "has no value while the graph of a loss is built", "numpy.where"),
        (lambda p, t: (p - t).sum(), "a sum over all axes", 'reduction="sum"'),
        (lambda p, t: p > t, "do not depend on the output", "comparisons"),
        (lambda work, y, t: 3.0, "returned 3.0, not a tensor", "return the terms"),
        (lambda p, t: float(p), "has no value while the graph of a loss is built", "numpy.exp"),
        (lambda p, t: p[:2], "counts samples", "x[:, 0]"),
        (lambda p, t: None, "returned None", "return the terms"),
    ],
)
def test_the_mistakes_of_a_function_are_its_own(function: Any, message: str, hint: str) -> None:
    with pytest.raises(VolumetricError) as caught:
        GraphLoss(function=function).terms(Y, T)
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_a_class_is_no_function() -> None:
    """Of a loss it is its values that are asked for; another class would be called as if it were one."""
    with pytest.raises(SpecError, match="loss"):
        as_loss(MSE)
    with pytest.raises(SpecError, match="loss"):
        as_loss(dict)
