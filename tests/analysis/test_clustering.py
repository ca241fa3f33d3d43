"""Clustering gives what scikit-learn 1.9.1 gives on the same points; its results are stored here."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.analysis import group, kmeans, silhouette, silhouettes
from volumetric.analysis.clustering import distances
from volumetric.base.errors import ShapeError, SpecError

DRAW = np.random.default_rng(7)
CENTERS = ([0, 0, 0], [3, 0, 1], [0, 4, -2])
POINTS = np.round(np.concatenate([DRAW.normal(c, 0.8, (8, 3)) for c in CENTERS]), 2)
LABELS = [1] * 5 + [7] + [1] * 2 + [2] * 8 + [0] * 8
SILHOUETTES = [
    *(0.149937152364, 0.142305581371, 0.208895476211, 0.274745375406, -0.483740989265, 0.0, 0.062383691331),
    *(-0.352457868944, 0.201755992604, 0.56515335102, -0.017709834847, 0.521420894672, 0.581522653678),
    *(0.589108255531, 0.404799753381, 0.453141288746, 0.675166174713, 0.641774030972, 0.758302858133),
    *(0.735862351807, 0.627382090589, 0.60670378559, 0.706351797882, 0.674583470738),
]
GROUPS = {  # linkage, metric → labels of 4 or 5 groups
    ("single", "euclidean", 4): [1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0],
    ("single", "cosine", 5): [4, 2, 4, 3, 1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4],
    ("complete", "euclidean", 4): [0, 0, 0, 0, 0, 0, 0, 0, 3, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1],
    ("complete", "cosine", 5): [1, 4, 1, 3, 2, 2, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
    ("average", "euclidean", 4): [2, 2, 2, 2, 2, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    ("average", "cosine", 5): [2, 3, 2, 4, 1, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2],
}
CUTS = {  # linkage → labels where groups farther apart than 1.5 stay apart
    "single": [1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 4],
    "complete": [2, 1, 2, 2, 8, 8, 1, 8, 7, 4, 10, 4, 4, 4, 3, 3, 6, 0, 0, 5, 0, 0, 5, 9],
    "average": [1, 2, 1, 1, 3, 3, 2, 3, 7, 0, 0, 0, 0, 0, 9, 0, 6, 5, 5, 4, 5, 5, 4, 8],
}


def renumbered(labels: list[int]) -> list[int]:
    """Groups numbered in the order in which they first appear."""
    return [list(dict.fromkeys(labels)).index(label) for label in labels]


def test_kmeans_from_given_centres_ends_where_scikit_learn_does() -> None:
    found = kmeans(POINTS, 3, init=POINTS[[0, 1, 9]])
    assert found.labels.tolist() == [1] * 8 + [2] * 8 + [0] * 8
    assert found.inertia == pytest.approx(29.370374999999996, rel=1e-12)
    centers = [[-0.225, 4.49625, -2.27875], [-0.27875, -0.315, -0.34375], [2.43625, 0.22875, 0.6775]]
    np.testing.assert_allclose(found.centers, centers, rtol=1e-12)


def test_kmeans_with_random_starts_finds_the_best_and_repeats() -> None:
    found = kmeans(POINTS, 3, seed=1)
    assert found.inertia == pytest.approx(29.370374999999996)
    np.testing.assert_array_equal(found.labels, kmeans(POINTS, 3, seed=1).labels)
    assert kmeans(POINTS, 24).inertia == 0
    assert kmeans(POINTS, 1).centers[0] == pytest.approx(POINTS.mean(0))


def test_kmeans_fills_empty_clusters_and_bears_equal_points() -> None:
    found = kmeans([[0.0], [0.1], [10.0], [10.1]], 3, init=[[0.0], [10.0], [99.0]])
    assert set(found.labels.tolist()) == {0, 1, 2}
    assert kmeans(np.ones((5, 2)), 3).inertia == 0


@pytest.mark.parametrize(("linkage", "metric", "groups"), GROUPS)
def test_groups_are_those_of_scikit_learn(linkage, metric, groups) -> None:
    found = group(POINTS, groups=groups, linkage=linkage, metric=metric)
    assert found.tolist() == renumbered(GROUPS[linkage, metric, groups])


@pytest.mark.parametrize("linkage", CUTS)
def test_groups_below_a_threshold_are_those_of_scikit_learn(linkage) -> None:
    assert group(POINTS, threshold=1.5, linkage=linkage).tolist() == renumbered(CUTS[linkage])
    assert set(group(POINTS, threshold=1e9, linkage=linkage).tolist()) == {0}
    assert group(POINTS, threshold=0.0, linkage=linkage).tolist() == list(range(24))


def test_silhouettes_are_those_of_scikit_learn() -> None:
    np.testing.assert_allclose(silhouettes(POINTS, LABELS), SILHOUETTES, atol=1e-11)
    assert silhouette(POINTS, LABELS) == pytest.approx(0.3636411389034477, rel=1e-9)
    assert silhouette(POINTS, LABELS, metric="cosine") == pytest.approx(0.42178031070256267, rel=1e-9)


def test_distances_keep_precision_far_from_the_origin() -> None:
    a = np.array([[1e8, 1e8], [1e8 + 3, 1e8 + 4]])
    assert distances(a, a)[0, 1] == pytest.approx(5.0)
    assert distances(np.zeros((1, 2)), np.ones((1, 2)), "cosine")[0, 0] == 1


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: kmeans(POINTS, 25), SpecError, "cannot put 24 points into 25"),
        (lambda: kmeans(POINTS, 0), SpecError, "into 0 clusters"),
        (lambda: kmeans(POINTS[0], 1), ShapeError, "rows of a matrix"),
        (lambda: kmeans(POINTS * np.nan, 1), ShapeError, "finite"),
        (lambda: kmeans(POINTS, 2, init=[[0.0]]), ShapeError, "expected 2 centres"),
        (lambda: group(POINTS), SpecError, "either threshold or"),
        (lambda: group(POINTS, groups=0), SpecError, "cannot form 0 groups"),
        (lambda: group(POINTS, groups=2, linkage="ward"), SpecError, "unknown linkage"),  # pyright: ignore[reportArgumentType]
        (lambda: group(POINTS, groups=2, metric="x"), SpecError, "unknown metric"),  # pyright: ignore[reportArgumentType]
        (lambda: silhouette(POINTS, [0] * 24), SpecError, "at least two"),
        (lambda: silhouette(POINTS, [0, 1]), ShapeError, "one label for each"),
    ],
)
def test_what_cannot_be_clustered_is_refused(call, kind, message) -> None:
    with pytest.raises(kind, match=message):
        call()
