"""The softmax family against definitions written out, brute force, closed forms, and its edge cases."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from tests.examples import CASES
from tests.layers.graphed import graphed
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numeric.softmax import log_likelihoods, log_softmax, softmax
from volumetric.graph.operations.rows import entmax, sparsemax
from volumetric.layers import (
    LAYERS,
    AdaptiveSoftmax,
    Entmax,
    GridSoftmax,
    GumbelSoftmax,
    HierarchicalSoftmax,
    LayerSpec,
    MaskedSoftmax,
    MixtureSoftmax,
    Softmax,
    Sparsemax,
)
from volumetric.layers.softmax import AxisSoftmax

FAMILY = {name: case for name, case in CASES.items() if isinstance(case[0], AxisSoftmax)}
LOGITS = arrays_of.arrays(np.float64, st.tuples(st.just(2), st.integers(1, 6)), elements=st.floats(-6, 6))


def run(spec: LayerSpec, x: Any) -> np.ndarray:
    return graphed(spec).forward({}, np.asarray(x, np.float64))[0]


def plain(logits: np.ndarray) -> np.ndarray:
    weights = [math.exp(v) for v in logits]
    return np.array(weights) / sum(weights)


def test_every_variant_of_the_family_is_here() -> None:
    kinds = {kind for kind, cls in LAYERS.items() if issubclass(cls, AxisSoftmax)}
    assert {spec.kind for spec, _ in FAMILY.values()} == kinds
    assert len(kinds) == 9


@given(LOGITS)
def test_the_logarithm_is_that_of_the_softmax(logits: np.ndarray) -> None:
    want = np.log([plain(row) for row in logits])
    np.testing.assert_allclose(log_softmax(logits), want, rtol=0, atol=1e-12)
    ids = np.arange(len(logits)) % logits.shape[1]
    picked = want[np.arange(len(logits)), ids]
    np.testing.assert_allclose(log_likelihoods(logits.copy(), ids), picked, rtol=0, atol=1e-12)


def test_logarithms_of_odd_rows() -> None:
    rows = np.array([[2**100, 0, -(2**100)], [-math.inf, 3, -math.inf], [-math.inf] * 3, [math.inf, 0, 0]], np.float32)
    logs = log_softmax(rows)
    np.testing.assert_array_equal(logs[:2], [[0, -(2**100), -(2**101)], [-math.inf, 0, -math.inf]])
    assert np.isnan(logs[2:]).all()
    np.testing.assert_array_equal(log_likelihoods(rows, np.array([0, 0, 1, 2])), [0, -math.inf, math.nan, math.nan])


@pytest.mark.parametrize("name", FAMILY)
def test_outputs_are_probabilities(name: str) -> None:
    spec, shape = FAMILY[name]
    assert isinstance(spec, AxisSoftmax)
    y = run(spec, np.random.default_rng(0).standard_normal(shape))
    total = y.sum(axis=spec.axis)
    expected = (
        spec.rows if isinstance(spec, GridSoftmax) else int(not isinstance(spec, MaskedSoftmax) or any(spec.mask))
    )
    assert (y >= 0).all()
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", FAMILY)
def test_bad_slices_disturb_no_other_and_zero_rows_are_allowed(name: str) -> None:
    spec, shape = FAMILY[name]
    assert isinstance(spec, AxisSoftmax)
    if isinstance(spec, MaskedSoftmax) and not any(spec.mask):
        return
    x = np.random.default_rng(0).standard_normal(shape)
    good = run(spec, x)
    y, saved = graphed(spec).forward({}, x[:0])
    assert y.shape == (0, *good.shape[1:])
    assert graphed(spec).vjp({}, saved, y).inputs[0] is not None
    for bad in (np.nan, np.inf):
        broken = x.copy()
        broken[(0, *[-1] * (x.ndim - 1))] = bad
        broken_mask = isinstance(spec, MaskedSoftmax) and not spec.mask[-1]
        y = run(spec, broken)
        np.testing.assert_array_equal(y[1:], good[1:])
        assert np.isnan(y[0]).any() != broken_mask
    nothing = x.copy()
    nothing[0] = -np.inf
    y, saved = graphed(spec).forward({}, nothing)
    g = graphed(spec).vjp({}, saved, np.ones_like(y)).inputs[0]
    assert g is not None
    assert not y[0].any()
    assert not g[0].any()
    np.testing.assert_array_equal(y[1:], good[1:])


@pytest.mark.parametrize("kind", [Softmax, Sparsemax, Entmax])
def test_an_axis_is_the_last_one_after_moving_it(kind: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    for axis in (1, 2, 3, -1, -2, -3):
        moved = run(kind(), np.moveaxis(x, axis, -1))
        np.testing.assert_array_equal(run(kind(axis=axis), x), np.moveaxis(moved, -1, axis))


def test_temperature_divides() -> None:
    x = np.array([[1.0, 2.0, 4.0]])
    np.testing.assert_allclose(run(Softmax(temperature=2.0), x)[0], plain(x[0] / 2), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(run(Sparsemax(temperature=2.0), x), run(Sparsemax(), x / 2))


def test_masked_places_have_no_part_whatever_stands_there() -> None:
    spec = MaskedSoftmax(mask=(True, False, True))
    y = run(spec, [[1.0, np.nan, 2.0], [0.0, np.inf, -np.inf]])
    np.testing.assert_allclose(y[0], [*plain(np.array([1.0, 2.0])).tolist()[:1], 0, plain(np.array([1.0, 2.0]))[1]])
    np.testing.assert_array_equal(y[1], [1, 0, 0])
    np.testing.assert_array_equal(run(MaskedSoftmax(mask=(False, False)), [[1.0, 2.0]]), [[0, 0]])


def test_grid_rows_are_choices_of_their_own() -> None:
    y = run(GridSoftmax(rows=2, cols=2), [[0.0, 1.0, 5.0, 3.0]])
    np.testing.assert_allclose(y[0], [*plain(np.array([0.0, 1.0])), *plain(np.array([5.0, 3.0]))], atol=1e-15)


def test_a_leaf_has_the_product_along_its_path() -> None:
    z = np.random.default_rng(0).standard_normal(2 + 6 + 12)
    y = run(HierarchicalSoftmax(levels=(2, 3, 2)), z[None])[0]
    top = plain(z[:2])
    for leaf, (i, j, k) in enumerate(itertools.product(range(2), range(3), range(2))):
        middle = plain(z[2 + 3 * i : 5 + 3 * i])
        low = plain(z[8 + 2 * (3 * i + j) : 10 + 2 * (3 * i + j)])
        assert y[leaf] == pytest.approx(top[i] * middle[j] * low[k], abs=1e-15)
    single = run(HierarchicalSoftmax(levels=(5,)), z[None, :5])[0]
    np.testing.assert_allclose(single, plain(z[:5]), atol=1e-15)


def test_a_rare_class_has_the_product_of_both_choices() -> None:
    z = np.random.default_rng(0).standard_normal(11)
    y = run(AdaptiveSoftmax(n_classes=9, cutoffs=(2, 5)), z[None])[0]
    head = plain(z[:4])
    expected = [*head[:2], *(head[2] * plain(z[4:7])), *(head[3] * plain(z[7:]))]
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-15)


def test_a_mixture_is_the_weighted_mean() -> None:
    z = np.random.default_rng(0).standard_normal(2 + 2 * 3)
    weights = plain(z[:2])
    expected = weights[0] * plain(z[2:5]) + weights[1] * plain(z[5:])
    np.testing.assert_allclose(run(MixtureSoftmax(components=2), z[None])[0], expected, rtol=0, atol=1e-15)


def test_gumbel_noise_depends_on_seed_and_position_alone() -> None:
    x = np.random.default_rng(0).standard_normal((6, 5))
    spec = GumbelSoftmax(seed=3)
    whole = run(spec, x)
    np.testing.assert_array_equal(run(spec, x), whole)
    assert np.abs(run(GumbelSoftmax(seed=4), x) - whole).max() > 0.1
    np.testing.assert_array_equal(oracle(spec).forward({}, x[4:], memory=Memory(4))[0], whole[4:])
    np.testing.assert_allclose(graphed(spec).forward({}, x.astype(np.float32))[0], whole, rtol=0, atol=1e-6)


def test_the_largest_gumbel_logit_is_a_sample_of_softmax() -> None:
    logits = np.array([0.0, 1.0, -1.0])
    y = run(GumbelSoftmax(seed=1), np.broadcast_to(logits, (4000, 3)))
    share = np.bincount(y.argmax(axis=-1), minlength=3) / len(y)
    np.testing.assert_allclose(share, plain(logits), rtol=0, atol=4 * math.sqrt(0.25 / len(y)))


def nearest_in_simplex(z: np.ndarray) -> np.ndarray:
    """The projection is the nearest of the points that are optimal on one support."""
    best = np.zeros_like(z)
    for support in itertools.product([False, True], repeat=len(z)):
        mask = np.array(support)
        if not mask.any():
            continue
        point = np.where(mask, z - (z[mask].sum() - 1) / mask.sum(), 0)
        if (point >= -1e-12).all() and (not best.any() or np.sum((point - z) ** 2) < np.sum((best - z) ** 2)):
            best = point
    return best


@given(LOGITS)
def test_sparsemax_is_the_nearest_point_of_the_simplex(x: np.ndarray) -> None:
    np.testing.assert_allclose(sparsemax(x), [nearest_in_simplex(row) for row in x], rtol=0, atol=1e-9)


def exact_entmax15(x: np.ndarray) -> np.ndarray:
    """The closed form for α = 1.5 by sorting (Peters et al. 2019, algorithm 2)."""
    z = (x - x.max()) / 2
    falling = np.sort(z)[::-1]
    best = 0.0
    for k in range(1, len(z) + 1):
        mean, mean_square = falling[:k].mean(), np.square(falling[:k]).mean()
        inside = (1 - k * (mean_square - mean**2)) / k
        threshold = mean - math.sqrt(max(inside, 0.0))
        if threshold <= falling[k - 1]:
            best = threshold
    return np.square(np.maximum(z - best, 0))


@pytest.mark.thorough
@given(LOGITS)
def test_entmax_equals_its_closed_forms(x: np.ndarray) -> None:
    np.testing.assert_allclose(entmax(x, 1.5), [exact_entmax15(row) for row in x], rtol=0, atol=1e-7)
    np.testing.assert_allclose(entmax(x, 2.0), sparsemax(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(entmax(x, 1 + 1e-6), softmax(x), rtol=0, atol=1e-4)


@given(LOGITS, st.floats(1.05, 1.95))
def test_entmax_meets_its_conditions_of_optimality(x: np.ndarray, alpha: float) -> None:
    y = entmax(x, alpha)
    np.testing.assert_allclose(y.sum(axis=-1), 1, rtol=0, atol=1e-12)
    for row, p in zip((alpha - 1) * x, y, strict=True):
        thresholds = (row - p ** (alpha - 1))[p > 0]  # the same τ wherever there is probability …
        np.testing.assert_allclose(thresholds, thresholds[0], rtol=0, atol=1e-9)
        assert (row[p == 0] <= thresholds[0] + 1e-9).all()  # … and nothing above τ elsewhere


def test_entmax_is_exact_in_wide_rows_and_float32() -> None:
    x = np.random.default_rng(0).standard_normal((2, 50_000)).astype(np.float32) * 3
    for alpha in (1.1, 1.5, 2.0):
        wide = run(Entmax(alpha=alpha), x.astype(np.float64))
        narrow, _ = graphed(Entmax(alpha=alpha)).forward({}, x)
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, wide, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Softmax, {"temperature": 0.0}, "temperature must be above 0"),
        (Sparsemax, {"temperature": math.inf}, "sparsemax: temperature must be above 0"),
        (Softmax, {"axis": 0}, "axis must not be 0"),
        (MaskedSoftmax, {"mask": ()}, "mask must not be empty"),
        (GumbelSoftmax, {"seed": -1}, "seed must not be below 0"),
        (Entmax, {"alpha": 1.0}, "alpha must be above 1 and at most 2"),
        (Entmax, {"alpha": 2.5}, "alpha must be above 1 and at most 2"),
        (GridSoftmax, {"rows": 0, "cols": 2}, "rows must be a whole number"),
        (HierarchicalSoftmax, {"levels": ()}, "levels must be whole numbers"),
        (HierarchicalSoftmax, {"levels": (2, 0)}, "levels must be whole numbers"),
        (AdaptiveSoftmax, {"n_classes": 5, "cutoffs": (3, 3)}, "cutoffs must rise"),
        (AdaptiveSoftmax, {"n_classes": 5, "cutoffs": (5,)}, "cutoffs must rise"),
        (AdaptiveSoftmax, {"n_classes": 5, "cutoffs": ()}, "cutoffs must rise"),
        (MixtureSoftmax, {"components": 0}, "components must be"),
    ],
)
def test_ill_formed_layers_are_refused(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        kind(**fields)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        (Softmax(axis=2), (3, 4), r"softmax needs an axis 2 other than the rows, got shape \[3, 4\]"),
        (Softmax(axis=-2), (-1, 4), r"needs an axis -2 other than the rows, got shape \[T, 4\]"),
        (Softmax(), (4,), "needs an axis -1"),
        (MaskedSoftmax(mask=(True, True)), (3, 4), "the mask is for 2 logits, got 4"),
        (GridSoftmax(rows=2, cols=3), (3, 5), "a grid of 2×3 needs 6 logits, got 5"),
        (HierarchicalSoftmax(levels=(2, 3)), (3, 6), r"levels \(2, 3\) need 2 \+ 6 logits, got 6"),
        (AdaptiveSoftmax(n_classes=5, cutoffs=(2,)), (3, 5), "each of 5 classes and 1 clusters, got 5"),
        (MixtureSoftmax(components=3), (3, 3), "needs 3 logits for the weights"),
        (MixtureSoftmax(components=3), (3, 10), "as many equal parts, got 10"),
    ],
)
def test_other_shapes_are_refused(spec: LayerSpec, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        spec.output_shape(shape)
