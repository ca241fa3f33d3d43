"""Optimisers against formulas written anew for one number, schedules by their values, clipping."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from tests.oracles.clip import clip_by_norm, global_norm
from volumetric.base.errors import SpecError
from volumetric.train import (
    OPTIMISERS,
    SCHEDULES,
    SGD,
    Adam,
    AdamW,
    Constant,
    Cosine,
    Linear,
    Momentum,
    Optimiser,
    RMSprop,
    StepDecay,
    WarmUp,
)

GRADIENTS = [0.5, -1.25, 2.0, 0.125, -0.75]
RATE = 0.1


def sgd(w: float, decay: float) -> Iterator[float]:
    for g in GRADIENTS:
        w -= RATE * (g + decay * w)
        yield w


def momentum(w: float, decay: float, mu: float, dampening: float, nesterov: bool) -> Iterator[float]:
    v = None
    for g in GRADIENTS:
        g += decay * w
        v = g if v is None else mu * v + (1 - dampening) * g
        w -= RATE * (g + mu * v if nesterov else v)
        yield w


def rmsprop(w: float, decay: float, alpha: float, mu: float, centered: bool) -> Iterator[float]:
    square = mean = v = 0.0
    for g in GRADIENTS:
        g += decay * w
        square = alpha * square + (1 - alpha) * g**2
        mean = alpha * mean + (1 - alpha) * g
        variance = square - mean**2 if centered else square
        v = mu * v + g / (math.sqrt(variance) + 1e-8)
        w -= RATE * v
        yield w


def adamw(w: float, decay: float, beta1: float, beta2: float) -> Iterator[float]:
    m = s = 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        w -= RATE * decay * w
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g**2
        w -= RATE * (m / (1 - beta1**t)) / (math.sqrt(s / (1 - beta2**t)) + 1e-8)
        yield w


def adam(w: float, decay: float, beta1: float, beta2: float) -> Iterator[float]:
    m = s = 0.0
    for t, plain in enumerate(GRADIENTS, start=1):
        g = plain + decay * w
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g**2
        w -= RATE * (m / (1 - beta1**t)) / (math.sqrt(s / (1 - beta2**t)) + 1e-8)
        yield w


CASES = {
    "adam": (Adam(), lambda w: adam(w, 0, 0.9, 0.999)),
    "adam decay": (Adam(weight_decay=0.3, beta1=0.5, beta2=0.7), lambda w: adam(w, 0.3, 0.5, 0.7)),
    "sgd": (SGD(), lambda w: sgd(w, 0)),
    "sgd decay": (SGD(weight_decay=0.1), lambda w: sgd(w, 0.1)),
    "momentum": (Momentum(), lambda w: momentum(w, 0, 0.9, 0, False)),
    "momentum damped": (
        Momentum(momentum=0.8, dampening=0.3, weight_decay=0.05),
        lambda w: momentum(w, 0.05, 0.8, 0.3, False),
    ),
    "nesterov": (Momentum(nesterov=True), lambda w: momentum(w, 0, 0.9, 0, True)),
    "rmsprop": (RMSprop(), lambda w: rmsprop(w, 0, 0.99, 0, False)),
    "rmsprop all": (
        RMSprop(alpha=0.9, momentum=0.5, centered=True, weight_decay=0.02),
        lambda w: rmsprop(w, 0.02, 0.9, 0.5, True),
    ),
    "adamw": (AdamW(), lambda w: adamw(w, 0.01, 0.9, 0.999)),
    "adamw decay": (AdamW(weight_decay=0.3, beta1=0.5, beta2=0.7), lambda w: adamw(w, 0.3, 0.5, 0.7)),
}


def run(optimiser: Optimiser, start: np.ndarray) -> Iterator[np.ndarray]:
    w, slots = start, {name: np.zeros_like(start) for name in optimiser.slots}
    for step, g in enumerate(GRADIENTS, start=1):
        w, slots = optimiser.update(w, np.full_like(w, g), slots, step=step, rate=RATE)
        assert set(slots) == set(optimiser.slots)
        yield w


@pytest.mark.parametrize("name", CASES)
def test_sequence_of_updates(name: str) -> None:
    optimiser, formula = CASES[name]
    got = [w.tolist() for w in run(optimiser, np.array([1.5, -0.25]))]
    np.testing.assert_allclose(got, list(zip(formula(1.5), formula(-0.25), strict=True)), rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_float32_stays_and_nothing_changes_in_place(name: str) -> None:
    start = np.array([1.5, -0.25], np.float32)
    results = list(run(CASES[name][0], start))
    assert start.tolist() == [1.5, -0.25]
    assert {w.dtype for w in results} == {np.dtype(np.float32)}


def test_first_adamw_update_is_the_sign() -> None:
    w, _ = AdamW(weight_decay=0).update(
        np.array([1.0, 1.0]), np.array([1e-3, -40.0]), {"mean": np.zeros(2), "square": np.zeros(2)}, step=1, rate=0.1
    )
    np.testing.assert_allclose(w, [0.9, 1.1], rtol=1e-5)


def test_weight_decay_can_leave_vectors_alone() -> None:
    optimiser = AdamW(weight_decay=0.5)
    assert optimiser.for_weight(1, decay_vectors=False).weight_decay == 0
    assert optimiser.for_weight(2, decay_vectors=False) is optimiser
    assert optimiser.for_weight(1, decay_vectors=True) is optimiser


def test_defaults_are_those_of_torch() -> None:
    assert (SGD().lr, Momentum().lr, RMSprop().lr, AdamW().lr) == (1e-3, 1e-3, 1e-2, 1e-3)
    assert AdamW() == AdamW(beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01)
    assert Adam() == Adam(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0)
    assert RMSprop() == RMSprop(alpha=0.99, eps=1e-8, momentum=0, centered=False)
    assert set(OPTIMISERS) == {"sgd", "momentum", "rmsprop", "adam", "adamw"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(lr=-1),
        lambda: AdamW(beta2=1),
        lambda: RMSprop(alpha=float("nan")),
        lambda: Momentum(nesterov=True, dampening=0.5),
        lambda: SGD(weight_decay=-1),
    ],
)
def test_settings_are_checked(make) -> None:
    with pytest.raises(SpecError):
        make()


def test_schedules() -> None:
    assert [Constant()(i) for i in (0, 9)] == [1, 1]
    assert [Linear(steps=4, floor=0.2)(i) for i in (0, 1, 4, 9)] == pytest.approx([1, 0.8, 0.2, 0.2])
    cosine = Cosine(steps=4, floor=0.2)
    root = math.sqrt(0.5)
    expected = [1, 0.2 + 0.4 * (1 + root), 0.6, 0.2 + 0.4 * (1 - root), 0.2, 0.2]
    assert [cosine(i) for i in range(6)] == pytest.approx(expected)
    assert [StepDecay(every=2, factor=0.5)(i) for i in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    warm = WarmUp(steps=4, then=StepDecay(every=1, factor=0.5))
    assert [warm(i) for i in range(7)] == [0.25, 0.5, 0.75, 1, 1, 0.5, 0.25]
    assert WarmUp(steps=2)(5) == 1
    for make in (lambda: Cosine(steps=0), lambda: Linear(steps=0), lambda: StepDecay(every=0), lambda: WarmUp(steps=0)):
        with pytest.raises(SpecError, match="at least 1"):
            make()
    assert set(SCHEDULES) == {"constant", "linear", "cosine", "step", "warmup"}


def test_clipping_scales_all_gradients_together() -> None:
    gradients = {"a": np.array([[3.0]]), "b": np.array([0.0, 4.0])}
    assert global_norm(gradients) == 5.0
    clipped = clip_by_norm(gradients, 5.0, 1.0)
    np.testing.assert_allclose(clipped["a"], [[0.6]], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"], [0, 0.8], rtol=1e-6)
    assert global_norm(clipped) <= 1.0
    untouched = clip_by_norm(gradients, 5.0, 6.0)
    assert all(untouched[key] is gradients[key] for key in gradients)


def test_norm_of_large_float32_gradients_does_not_overflow() -> None:
    assert global_norm({"a": np.full(4, 1e30, np.float32)}) == pytest.approx(2e30)
