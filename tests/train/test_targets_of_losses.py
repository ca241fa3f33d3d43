"""Losses × targets: each pair is learned from, or refused with the way out. No loss is silently constant."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import VolumetricError
from volumetric.builders import sequential
from volumetric.builders.sequential import chain
from volumetric.layers import LSTM, Dense, Softmax
from volumetric.network import Network, initialise
from volumetric.train import (
    BCE,
    L1,
    MSE,
    SGD,
    CrossEntropy,
    GraphLoss,
    Huber,
    Loss,
    StepEvent,
    TrainConfig,
    evaluate,
    train,
)

N = 12
draw = np.random.default_rng(0)
X = draw.standard_normal((N, 3)).astype(np.float32)
IDS = np.arange(N) % 2
ONE, TWO = IDS[:, None].astype(np.float32), np.eye(2, dtype=np.float32)[IDS]
REAL = draw.standard_normal((N, 1)).astype(np.float32)
SERIES = draw.standard_normal((4, 5, 3)).astype(np.float32)
BITS = np.arange(20).reshape(4, 5) % 2
REGRESSION = (MSE(), L1(), Huber(), BCE())


@dataclass(frozen=True)
class Case:
    """What is trained on what: the words of the refusal, and of its hint; none where it learns."""

    loss: Loss
    outputs: int
    targets: Any
    refused: str = ""
    hint: str = ""
    mask: Any = None
    inputs: Any = None


CASES = {
    # with one class the loss is always 0
    "ids of one class": Case(CrossEntropy(), 1, IDS * 0, "with one class the loss is always 0", "loss bce"),
    "ids, one output": Case(CrossEntropy(), 1, IDS, "with one class the loss is always 0", "two outputs"),
    "0 and 1 as soft targets": Case(CrossEntropy(), 1, ONE, "with one class the loss is always 0", "loss bce"),
    "sequences, one output": Case(
        CrossEntropy(), 1, BITS, "with one class the loss is always 0", "loss bce", inputs=SERIES
    ),
    # class ids
    **{f"ids as {t}": Case(CrossEntropy(), 2, IDS.astype(t)) for t in ("int8", "uint8", "int64", "uint64", "bool")},
    "ids as floats": Case(CrossEntropy(), 2, IDS.astype("f4")),
    "ids as a column": Case(CrossEntropy(), 2, IDS[:, None]),
    "ids as a column of floats": Case(CrossEntropy(), 2, ONE),
    "quotients as ids": Case(CrossEntropy(), 2, IDS / 2, "needs class ids", "targets.astype(int)"),
    "a column of quotients as ids": Case(CrossEntropy(), 2, ONE / 2, "needs class ids", "targets[:, 0].astype(int)"),
    "ids from 1": Case(CrossEntropy(), 2, IDS + 1, "class id 2 at [1] is outside of 0 … 1", "targets - 1"),
    "ids below 0": Case(CrossEntropy(), 2, IDS - 1, "class id -1 at [0]", "-100"),
    "too many classes": Case(CrossEntropy(), 2, np.arange(N), "class id", "it needs 12"),
    "all ignored": Case(CrossEntropy(), 2, IDS * 0 - 100, "the loss has no counted terms", "ignored class"),
    "ids of sequences": Case(CrossEntropy(), 2, BITS, inputs=SERIES),
    "a column of ids of sequences": Case(CrossEntropy(), 2, BITS[..., None], inputs=SERIES),
    "ids of sequences of one row": Case(CrossEntropy(), 2, BITS[:, 0], inputs=SERIES[:, :1]),
    "one id a sequence": Case(CrossEntropy(), 2, BITS[:, 0], "needs class ids", "", inputs=SERIES),
    # soft targets
    **{f"one-hot as {t}": Case(CrossEntropy(), 2, TWO.astype(t)) for t in ("bool", "int64", "float16", "float64")},
    "soft targets below 0": Case(CrossEntropy(), 2, TWO - 1, "must be probabilities, got -1", "mse"),
    "rows of no class": Case(CrossEntropy(), 2, TWO * ONE, "at [0] are all 0", "mask"),
    "masked rows of no class": Case(CrossEntropy(), 2, TWO * ONE, mask=ONE[:, 0]),
    "soft targets of three": Case(
        CrossEntropy(), 2, np.ones((N, 3)), "needs class ids", "2 outputs and the targets have 3"
    ),
    # numbers
    **{f"{of.kind} of a column": Case(of, 1, ONE) for of in REGRESSION},
    **{f"{of.kind} of bool": Case(of, 1, ONE > 0) for of in REGRESSION},
    **{f"{of.kind} of ints": Case(of, 1, IDS[:, None]) for of in REGRESSION},
    **{f"{of.kind} of sequences": Case(of, 1, BITS[..., None], inputs=SERIES) for of in REGRESSION},
    **{f"{of.kind} of (N,)": Case(of, 1, IDS) for of in REGRESSION},
    **{f"{of.kind} of (N, T)": Case(of, 1, BITS, inputs=SERIES) for of in REGRESSION},
    **{f"{of.kind} of ids": Case(of, 2, IDS, "the target (12,)", "cross_entropy") for of in REGRESSION},
    **{
        f"{of.kind} of two": Case(of, 1, TWO, "the target (12, 2)", "1 outputs and the targets have 2")
        for of in REGRESSION
    },
    "transposed": Case(MSE(), 1, ONE.T, "the same number of samples", "first axis"),
    "bce of -1 and 1": Case(BCE(), 1, ONE * 2 - 1, "targets must be in 0 … 1", "(targets + 1) / 2"),
    "bce of bytes": Case(BCE(), 1, IDS[:, None] * 255, "targets must be in 0 … 1", "targets / 255"),
    "bce of classes": Case(BCE(), 1, np.arange(N)[:, None] % 3, "got 0 to 2", "cross_entropy"),
    "bce of probabilities": Case(BCE(logits=False), 1, ONE, "probabilities must be in 0 … 1", "logits=True"),
    # what is no number
    "complex": Case(MSE(), 1, REAL + 0j, "targets must be numbers, got complex", "two features"),
    "text": Case(MSE(), 1, REAL.astype(str), "targets must be numbers, got text", 'astype("float32")'),
    "objects": Case(MSE(), 1, REAL.astype(object)),
    "objects other than numbers": Case(
        MSE(), 1, np.array([[None]] * N), "targets must be numbers, got Python objects", "astype"
    ),
    "text among objects": Case(MSE(), 1, np.array([["1"]] * N, object), "targets must be numbers", "astype"),
    "labels": Case(CrossEntropy(), 2, np.array(["a", "b"] * 6), "targets must be numbers", "return_inverse"),
    "ragged": Case(MSE(), 1, [[1.0], [1.0, 2.0]] * 6, "unequal lengths", "pad"),
    "dates": Case(MSE(), 1, np.zeros((N, 1), "M8[s]"), "targets must be numbers, got datetime64", ""),
    "NaN": Case(MSE(), 1, REAL * np.nan, "targets[0, 0] is nan", "remove these samples"),
    "NaN as bits": Case(BCE(), 1, REAL * np.nan, "targets[0, 0] is nan", "remove these samples"),
    "NaN as probabilities": Case(CrossEntropy(), 2, TWO * np.nan, "targets[0, 0] is nan", "remove these samples"),
    # weights of terms
    "a mask of bool": Case(MSE(), 1, REAL, mask=IDS > 0),
    "a mask of NaN": Case(MSE(), 1, REAL, "mask[0] is nan", "remove these samples", mask=REAL[:, 0] * np.nan),
    "a mask below 0": Case(MSE(), 1, REAL, "a weight below 0", "0 or more", mask=-ONE[:, 0]),
    "a mask of nothing": Case(MSE(), 1, REAL, "the loss has no counted terms", "masked", mask=ONE[:, 0] * 0),
    "a mask as a column": Case(CrossEntropy(), 2, IDS, "does not fit terms", "mask.reshape([12])", mask=ONE + 1),
    "a mask of text": Case(MSE(), 1, REAL, "mask must be numbers", "", mask=np.array(["a"] * N)),
    # a loss of one's own, whose arithmetic would broadcast
    "a function of (N, 1)": Case(GraphLoss(function=lambda p, t: (p - t) ** 2), 1, IDS[:, None]),
    "a function of (N,)": Case(
        GraphLoss(function=lambda p, t: (p - t) ** 2), 1, IDS, "do not match", "targets[:, None]"
    ),
    "a graph of (N,)": Case(
        GraphLoss(function=lambda work, y, t: work.unary(work.binary("sub", y, t), "square")),
        1,
        REAL[:, 0],
        "each sample with all others",
        "targets[:, None]",
    ),
}


def network_of(case: Case) -> Network:
    if case.inputs is None:
        return sequential(3, case.outputs, hidden=())
    layers = [LSTM(input_size=3, hidden_size=4), Dense(in_features=4, out_features=case.outputs)]
    return chain(layers, (3,))


def updates_of(case: Case) -> list[StepEvent]:
    network, events = network_of(case), list[Any]()
    data = (X if case.inputs is None else case.inputs, case.targets, case.mask)
    config = TrainConfig(loss=case.loss, epochs=2, optimiser=SGD(lr=0.1))
    train(network, initialise(network), data, config, device="reference", reporters=[events.append])
    return [event for event in events if isinstance(event, StepEvent)]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.refused])
def test_what_is_not_refused_is_learned_from(name: str) -> None:
    updates = updates_of(CASES[name])
    assert all(update.gradient_norm > 0 for update in updates)
    assert updates[0].loss > updates[-1].loss > 0


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.refused])
def test_what_is_refused_has_a_way_out(name: str) -> None:
    case = CASES[name]
    with pytest.raises(VolumetricError) as caught:
        updates_of(case)
    assert case.refused in str(caught.value)
    assert case.hint in (caught.value.hint or "")
    assert caught.value.hint != type(caught.value).advice  # it says what to do here, not in general


@pytest.mark.parametrize("name", ["ids as bool", "0 and 1 as soft targets", "rows of no class", "a function of (N, 1)"])
def test_the_cpu_judges_alike(name: str) -> None:
    case = CASES[name]
    network = network_of(case)
    found: list[Any] = []
    for device in ("reference", "cpu"):
        try:
            of = evaluate(network, initialise(network), (X, case.targets), TrainConfig(loss=case.loss), device=device)
            found.append((round(of.loss, 5), of.accuracy))
        except VolumetricError as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]


def test_the_class_of_one_logit_is_that_of_its_probability() -> None:
    network = sequential(1, 1, hidden=(), bias=False)
    params = initialise(network)
    [key] = params
    weight = params[key].values().item()
    x = np.array([[0.3], [-0.3]], np.float32) / weight  # logits 0.3 and -0.3: probabilities 0.57 and 0.43
    found = evaluate(network, params, (x, np.array([[1], [0]])), TrainConfig(loss=BCE()), device="reference")
    assert found.accuracy == 1


def told(network: Network, loss: Loss, y: Any, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.WARNING):
        config = TrainConfig(loss=loss, optimiser=SGD(lr=0.01))
        train(network, initialise(network), (X, y), config, device="reference")
    return caplog.text


def test_probabilities_under_a_loss_of_logits_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    dense = Dense(in_features=3, out_features=2)
    assert "softmax is applied twice" in told(chain([dense, Softmax()], (3,)), CrossEntropy(), IDS, caplog)
    squashed = sequential(3, 1, hidden=(), output_activation="sigmoid")
    assert "bce expects logits" in told(squashed, BCE(), ONE, caplog)


def test_the_same_ends_with_their_losses_are_not(caplog: pytest.LogCaptureFixture) -> None:
    assert not told(sequential(3, 1, hidden=(), output_activation="sigmoid"), BCE(logits=False), ONE, caplog)
    assert not told(sequential(3, 2, hidden=(), output_activation="relu"), MSE(), TWO, caplog)
    assert not told(sequential(3, 2, hidden=()), CrossEntropy(), IDS, caplog)


def test_weights_without_any_gradient_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    stuck = GraphLoss(function=lambda p, t: np.maximum(p - 1e9, 0) + 1)
    assert "no weight had a gradient" in told(sequential(3, 1, hidden=()), stuck, REAL, caplog)
