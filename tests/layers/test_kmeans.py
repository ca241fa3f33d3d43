"""KMeans against its definition, and where it must not lose precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.layers.graphed import graphed
from tests.layers.test_vjp import arrays
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers import KMeans


def slow(spec: KMeans, centers: np.ndarray, row: np.ndarray) -> list[float]:
    """Assignment of one row, with distances written out."""
    weights = [math.exp(-(math.dist(row, center) ** 2) / (2 * spec.temperature**2)) for center in centers]
    return [w / sum(weights) for w in weights]


def test_both_outputs_equal_the_definition() -> None:
    probabilities = KMeans(num_clusters=4, in_features=3, temperature=0.8)
    features = KMeans(num_clusters=4, in_features=3, temperature=0.8, output="features")
    p, x = arrays(probabilities, (2, 5, 3), seed=1)
    assigned = np.array([[slow(probabilities, p["centers"], row) for row in sample] for sample in x])
    np.testing.assert_allclose(graphed(probabilities).forward(p, x)[0], assigned, rtol=0, atol=1e-14)
    np.testing.assert_allclose(graphed(features).forward(p, x)[0], assigned @ p["centers"], rtol=0, atol=1e-14)


def test_low_temperature_takes_the_nearest_centre_and_high_none() -> None:
    centers = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    x = np.array([[0.1, 0.2], [0.9, -0.2], [0.0, 2.0]])
    sharp, _ = graphed(KMeans(num_clusters=3, in_features=2, temperature=0.01)).forward({"centers": centers}, x)
    np.testing.assert_allclose(sharp, np.eye(3), rtol=0, atol=1e-12)
    flat, _ = graphed(KMeans(num_clusters=3, in_features=2, temperature=1e4)).forward({"centers": centers}, x)
    np.testing.assert_allclose(flat, 1 / 3, rtol=0, atol=1e-6)


def test_data_far_from_the_origin_keeps_its_precision() -> None:
    spec = KMeans(num_clusters=4, in_features=8, temperature=0.5)
    p, x = arrays(spec, (5, 8), seed=1)
    far = np.float32(1024)  # a power of two: moving there rounds, moving back does not
    moved = {"centers": p["centers"].astype(np.float32) + far}
    points = x.astype(np.float32) + far
    exact, _ = graphed(spec).forward({"centers": moved["centers"].astype(np.float64)}, points.astype(np.float64))
    np.testing.assert_allclose(graphed(spec).forward(moved, points)[0], exact, rtol=0, atol=1e-3)


def test_one_cluster_zero_rows_and_nan() -> None:
    single = KMeans(num_clusters=1, in_features=2)
    np.testing.assert_array_equal(
        graphed(single).forward({"centers": np.ones((1, 2))}, np.zeros((3, 2)))[0], np.ones((3, 1))
    )
    spec = KMeans(num_clusters=4, in_features=3, output="features")
    p, x = arrays(spec, (5, 3), seed=1)
    y, saved = graphed(spec).forward(p, x[:0])
    assert y.shape == (0, 3)
    assert not graphed(spec).vjp(p, saved, y).params["centers"].any()
    x[2, 1] = np.nan
    assert np.isnan(graphed(spec).forward(p, x)[0]).all(axis=-1).tolist() == [False, False, True, False, False]


def test_ill_formed_layers_and_inputs_are_refused() -> None:
    with pytest.raises(SpecError, match="temperature must be above 0"):
        KMeans(num_clusters=2, in_features=2, temperature=0.0)
    with pytest.raises(SpecError, match="unknown output 'labels'"):
        KMeans(num_clusters=2, in_features=2, output="labels")  # pyright: ignore[reportArgumentType]  (the point)
    with pytest.raises(ShapeError, match="kmeans expects rows of 2 features"):
        KMeans(num_clusters=2, in_features=2).output_shape((4, 3))
