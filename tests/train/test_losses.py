"""Losses: values by hand, gradients against central differences, stability, masks and ignored classes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.layers.test_vjp import TOLERANCE, differences
from volumetric.base.errors import ShapeError, SpecError
from volumetric.train import BCE, L1, LOSSES, MSE, CrossEntropy, Huber, Loss

rng = np.random.default_rng(0)
Y = rng.standard_normal((5, 4)) * 2
BITS = rng.integers(0, 2, (5, 4))
SOFT = rng.dirichlet(np.ones(4), 5)
IDS = np.array([0, 3, -100, 1, 2])
ROWS_MASK = np.array([1, 0, 1, 1, 0.5])
CASES: dict[str, tuple[Loss, np.ndarray, np.ndarray, np.ndarray | None]] = {
    "mse": (MSE(), Y, rng.standard_normal((5, 4)), None),
    "mse of rows": (MSE(), Y, rng.standard_normal((5, 4)), ROWS_MASK),
    "mse of elements": (MSE(reduction="sum"), Y, rng.standard_normal((5, 4)), BITS.astype(bool)),
    "l1": (L1(), Y, rng.standard_normal((5, 4)), None),
    "l1 of rows": (L1(), Y, rng.standard_normal((5, 4)), ROWS_MASK),
    "huber": (Huber(delta=0.7), Y, rng.standard_normal((5, 4)), None),
    "bce": (BCE(), Y, BITS, None),
    "bce of rows": (BCE(), Y, BITS, ROWS_MASK),
    "bce of probabilities": (BCE(logits=False), rng.uniform(0.05, 0.95, (5, 4)), SOFT, None),
    "ids": (CrossEntropy(), Y, IDS, None),
    "ignored rows": (CrossEntropy(), Y, IDS, ROWS_MASK),
    "ids summed": (CrossEntropy(reduction="sum"), Y, IDS, None),
    "ids smoothed": (CrossEntropy(label_smoothing=0.2), Y, IDS, None),
    "soft": (CrossEntropy(), Y, SOFT, None),
    "soft smoothed": (CrossEntropy(label_smoothing=0.1), Y, SOFT * 2, ROWS_MASK),
    "sequences of ids": (CrossEntropy(), rng.standard_normal((2, 3, 4)), rng.integers(0, 4, (2, 3)), None),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_equals_central_differences(name: str) -> None:
    loss, output, target, mask = CASES[name]
    output = output.copy()
    _, got = loss.value_and_gradient(output, target, mask)
    want = differences(lambda: loss.value_and_gradient(output, target, mask)[0], output)
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_gradient_keeps_the_dtype(name: str) -> None:
    loss, output, target, mask = CASES[name]
    value, gradient = loss.value_and_gradient(output.astype(np.float32), target, mask)
    assert gradient.dtype == np.float32
    assert value == pytest.approx(loss.value_and_gradient(output, target, mask)[0], rel=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_parts_of_a_batch_sum_to_the_whole(name: str) -> None:
    loss, output, target, mask = CASES[name]
    parts = [loss.terms(output[i], target[i], None if mask is None else mask[i]) for i in (slice(2), slice(2, None))]
    whole = loss.terms(output, target, mask)
    assert sum(p.total for p in parts) == pytest.approx(whole.total, rel=1e-12)
    assert sum(p.count for p in parts) == pytest.approx(whole.count)
    np.testing.assert_allclose(np.concatenate([p.gradient for p in parts]), whole.gradient, rtol=1e-12, atol=1e-15)


def test_values_by_hand() -> None:
    y, t = np.array([[1.0, 5.0]]), np.array([[2.0, 2.0]])
    assert MSE().value_and_gradient(y, t)[0] == 5.0  # (1 + 9) / 2
    assert MSE(reduction="sum").value_and_gradient(y, t)[0] == 10.0
    assert L1().value_and_gradient(y, t)[0] == 2.0  # (1 + 3) / 2
    np.testing.assert_array_equal(L1(reduction="sum").value_and_gradient(y, np.array([[1.0, 2.0]]))[1], [[0, 1]])
    assert Huber().value_and_gradient(y, t)[0] == 1.5  # (1/2 + (3 - 1/2)) / 2
    assert BCE().value_and_gradient(np.zeros((1, 1)), np.ones((1, 1)))[0] == pytest.approx(math.log(2))
    z, half = np.log(np.array([[0.5, 0.25, 0.25]])), np.array([[0.5, 0.5, 0.0]])
    assert CrossEntropy().value_and_gradient(z, np.array([1]))[0] == pytest.approx(math.log(4))
    assert CrossEntropy().value_and_gradient(z, half)[0] == pytest.approx(1.5 * math.log(2))
    smoothed = CrossEntropy(label_smoothing=0.3).value_and_gradient(z, np.array([1]))[0]
    assert smoothed == pytest.approx(0.7 * math.log(4) + 0.1 * (math.log(2) + 2 * math.log(4)))


def test_ids_equal_their_soft_targets() -> None:
    ids = np.array([0, 3, 2, 1, 2])
    for smoothing in (0.0, 0.25):
        loss = CrossEntropy(label_smoothing=smoothing)
        by_id, by_row = loss.value_and_gradient(Y, ids), loss.value_and_gradient(Y, np.eye(4)[ids])
        assert by_id[0] == pytest.approx(by_row[0], rel=1e-12)
        np.testing.assert_allclose(by_id[1], by_row[1], atol=1e-14)


def test_ignored_rows_do_not_count() -> None:
    loss, kept = CrossEntropy(), IDS != -100
    value, gradient = loss.value_and_gradient(Y, IDS)
    assert value == pytest.approx(loss.value_and_gradient(Y[kept], IDS[kept])[0], rel=1e-12)
    assert not gradient[~kept].any()
    other = CrossEntropy(ignore_index=3)
    assert other.terms(Y, np.array([3, 3, 0, 1, 2])).count == 3


def test_an_ignored_row_may_hold_anything() -> None:
    output = Y.copy()
    output[2] = [-np.inf, 0, 0, 0]
    value, gradient = CrossEntropy().value_and_gradient(output, IDS)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_extreme_logits_stay_finite() -> None:
    z = np.array([[1e4, -1e4]], np.float32)
    for loss, target in ((BCE(), np.array([[0, 1]])), (CrossEntropy(), np.array([1]))):
        value, gradient = loss.value_and_gradient(z, target)
        assert value == pytest.approx(1e4 if loss.kind == "bce" else 2e4)
        assert np.isfinite(gradient).all()
    value, gradient = BCE(logits=False).value_and_gradient(np.array([[0.0, 1.0]], np.float32), np.array([[1, 0]]))
    assert value == pytest.approx(100, rel=1e-6)
    assert np.isfinite(gradient).all()


def test_nothing_that_counts_is_an_error() -> None:
    with pytest.raises(SpecError, match="no counted terms"):
        CrossEntropy().value_and_gradient(Y, np.full(5, -100))
    with pytest.raises(SpecError, match="no counted terms"):
        MSE().value_and_gradient(Y, Y, np.zeros(5))


@pytest.mark.parametrize(
    ("loss", "target", "mask", "message"),
    [
        (MSE(), Y[:, :3], None, r"output has shape \(5, 4\), the target \(5, 3\)"),
        (MSE(), Y, np.ones(4), r"mask of shape \(4,\)"),
        (MSE(), Y, -np.ones(5), "below 0"),
        (CrossEntropy(), np.array([0, 1, 2, 3, 4]), None, r"class id 4 at \[4\] is outside of 0 … 3"),
        (CrossEntropy(), IDS[:4], None, "needs class ids"),
        (CrossEntropy(), IDS.astype(float), None, "needs class ids"),
        (BCE(), Y * 9, None, "targets must be in"),
        (BCE(logits=False), BITS, None, "probabilities must be in"),
    ],
)
def test_what_does_not_fit_is_refused(loss: Loss, target: np.ndarray, mask: np.ndarray | None, message: str) -> None:
    with pytest.raises((ShapeError, SpecError), match=message):
        loss.terms(Y, target, mask)


def test_settings_are_checked() -> None:
    with pytest.raises(SpecError, match="delta"):
        Huber(delta=0)
    with pytest.raises(SpecError, match="label_smoothing"):
        CrossEntropy(label_smoothing=1)
    with pytest.raises(SpecError, match="reduction"):
        MSE(reduction="none")  # pyright: ignore[reportArgumentType]  (what a caller without a type checker may write)
    assert set(LOSSES) == {"mse", "l1", "mae", "cross_entropy", "bce", "huber"}
    assert LOSSES["mae"] is L1
