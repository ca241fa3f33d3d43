"""Deviations, ensembles, adaptation and predictions, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.analysis import (
    BUCKETS,
    AdaptationTracker,
    accuracy,
    complementary_matches,
    deviations,
    evaluate,
    majority_vote,
    predict,
    similarity,
)
from volumetric.base.errors import ShapeError, SpecError
from volumetric.builders import cnn, sequential
from volumetric.network import initialise


def test_deviations_are_percentages_of_what_was_expected() -> None:
    expected = [10.0, -4.0, 0.0, 1e-11, 5.0, 2.0]
    actual = [11.0, -3.0, 0.25, 0.0, np.nan, np.inf]
    np.testing.assert_allclose(deviations(outputs=actual, targets=expected), [10.0, 25.0, 25.0, 1e-9, 100.0, 100.0])


def test_buckets_include_their_upper_end() -> None:
    actual = [100, 110, 110.5, 120, 130, 140, 150, 200, 201, 500]
    found = evaluate(actual, np.full(10, 100.0))
    assert list(found.buckets) == list(BUCKETS)
    assert list(found.buckets.values()) == [2, 2, 1, 1, 1, 1, 2]
    assert (found.failures, found.total, found.exact) == (2, 10, 0.1)
    assert found.score == pytest.approx((100 + 90 + 89.5 + 80 + 70 + 60 + 50 + 0 + 0 + 0) / 10)
    assert found.worst == (9, 8, 7, 6, 5)
    assert found.mean_deviation == pytest.approx((0 + 10 + 10.5 + 20 + 30 + 40 + 50 + 100 + 101 + 400) / 10)


def test_accuracy_takes_ids_probabilities_and_single_columns() -> None:
    outputs = np.array([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]])
    assert accuracy(outputs, np.array([1, 0, 0])) == pytest.approx(2 / 3)
    assert accuracy(outputs, np.array([1, -100, 0])) == pytest.approx(1 / 2)
    assert accuracy(outputs, np.eye(2)[[1, 0, 0]]) == pytest.approx(2 / 3)
    assert accuracy(np.array([[0.9], [0.2]]), np.array([[1.0], [1.0]])) == 0.5
    assert accuracy(np.zeros((2, 3, 4)), np.zeros((2, 3), int)) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: deviations([1.0], [1.0, 2.0]),
        lambda: evaluate([], []),
        lambda: accuracy(np.zeros((3, 2)), np.zeros(2, int)),
        lambda: accuracy(np.zeros((3, 2)), np.zeros(3)),
        lambda: accuracy(np.zeros((1, 2)), np.array([-1])),
        lambda: complementary_matches({"a": [True], "b": [True, False]}),
        lambda: majority_vote([[0], [0, 1]]),
        lambda: similarity([True], [True, False]),
        lambda: predict(sequential(2, 1), initialise(sequential(2, 1)), np.zeros((0, 2), np.float32)),
    ],
)
def test_shapes_that_do_not_go_together_are_refused(call) -> None:
    with pytest.raises(ShapeError):
        call()


def test_matches_are_ordered_by_coverage_then_little_overlap() -> None:
    right = {"a": [1, 1, 0, 0], "b": [0, 0, 1, 1], "c": [1, 1, 1, 0], "d": [0, 1, 1, 1]}
    found = complementary_matches(right, 0.75)
    told = [(m.first, m.second, m.coverage, m.overlap, m.complete) for m in found]
    assert told == [
        ("a", "b", 1.0, 0.0, True),
        ("a", "d", 1.0, 0.25, True),
        ("b", "c", 1.0, 0.25, True),
        ("c", "d", 1.0, 0.5, True),
        ("a", "c", 0.75, 0.5, False),
        ("b", "d", 0.75, 0.5, False),
    ]


def test_votes_are_counted_and_ties_go_to_the_lowest_class() -> None:
    votes = [[2, 0, 1], [2, 1, 1], [0, 2, 1]]
    assert majority_vote(votes).tolist() == [2, 0, 1]
    assert majority_vote(votes, [1, 1, 3]).tolist() == [0, 2, 1]
    assert majority_vote([[[1, 0]], [[1, 1]]]).tolist() == [[1, 0]]
    for bad in ([], [[-1]], [[0.5]]):
        with pytest.raises(SpecError):
            majority_vote(bad)
    with pytest.raises(SpecError):
        majority_vote(votes, [1, 2])


def test_similarity_is_a_cosine() -> None:
    assert similarity([1, 1, 0], [1, 1, 0]) == pytest.approx(1)
    assert similarity([1, 1, 0], [0, 1, 1]) == pytest.approx(0.5)
    assert similarity([1, 0], [0, 0]) == 0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_adaptation_is_told_by_windows_and_changes_of_the_task() -> None:
    clock = Clock()
    tracker = AdaptationTracker(10.0, 5, task="chase", model="m", mode="sgd", clock=clock)
    for at, correct in [(0.5, 1), (1, 1), (2.5, 1), (3, 0), (4.5, 0), (5, 0), (6.5, 1), (7, 0), (8.5, 1), (9, 1)]:
        clock.now = 100 + at
        if at == 4.5:
            clock.now = 104.0
            tracker.change("avoid")
            clock.now = 104.5
        tracker.record(bool(correct))
    clock.now = 111.0
    tracker.record(True)
    report = tracker.report()
    assert [(w.start, w.task, w.outputs, w.accuracy) for w in report.windows] == [
        (0, "chase", 2, 1.0),
        (2, "chase", 2, 0.5),
        (4, "avoid", 2, 0.0),
        (6, "avoid", 2, 0.5),
        (8, "avoid", 2, 1.0),
    ]
    (change,) = report.changes
    assert (change.at, change.task, change.before, change.after, change.recovery) == (4.0, "avoid", 0.5, 0.0, 2.0)
    assert (report.outputs, report.outputs_per_second, report.accuracy) == (11, 1.0, pytest.approx(0.6))
    assert (report.model, report.mode) == ("m", "sgd")
    with pytest.raises(SpecError):
        AdaptationTracker(0, 5)


def test_predictions_are_the_same_in_batches_of_any_size() -> None:
    network = cnn((1, 6, 6), 3)
    params = initialise(network)
    x = np.random.default_rng(0).normal(size=(7, 1, 6, 6)).astype(np.float32)
    whole = predict(network, params, x)
    assert whole.shape == (7, 3)
    np.testing.assert_allclose(predict(network, params, x, batch_size=2), whole, atol=1e-6)


def test_sequences_are_predicted_each_on_its_own() -> None:
    network = tiny_llama()
    params = initialise(network)
    ids = np.arange(12, dtype=np.int32).reshape(2, 6)
    both = predict(network, params, ids)
    assert both.shape == (2, 6, 97)
    np.testing.assert_allclose(both[1], predict(network, params, ids[1], batch_size=2), atol=1e-6)
