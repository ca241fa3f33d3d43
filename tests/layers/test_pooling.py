"""What pooling and its companions refuse, and what they do with numbers that are not finite."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.layers.graphed import graphed
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers import (
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AvgPool2d,
    Flatten,
    GroupNorm,
    LastStep,
    LayerSpec,
    MaxPool1d,
    MaxPool2d,
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kernel_size": 0}, "kernel_size must be a whole number from 1"),
        ({"kernel_size": (2, 2)}, "kernel_size must be"),
        ({"kernel_size": 3, "padding": 2}, "padding 2 is more than half of kernel_size 3"),
        ({"kernel_size": 3, "stride": 0}, "stride must be a whole number from 1"),
        ({"kernel_size": 3, "dilation": 0}, "dilation must be"),
    ],
)
def test_fields_that_make_no_windows_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        MaxPool1d(**fields)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        (MaxPool2d(kernel_size=2), (1, 3, 8), "max_pool2d expects [N, C, H, W], got shape [1, 3, 8]"),
        (MaxPool2d(kernel_size=3), (1, 3, 2, 8), "a window that spans [3, 3] does not fit the padded sizes [2, 8]"),
        (AvgPool2d(kernel_size=2), (1, 0, 8, 8), "avg_pool2d expects"),
        (AdaptiveAvgPool2d(output_size=1), (1, 3, 0, 8), "adaptive_avg_pool2d expects [N, C, H, W]"),
        (AdaptiveMaxPool1d(output_size=1), (1, 3), "adaptive_max_pool1d expects [N, C, L]"),
        (LastStep(), (4, 5), "last_step expects sequences"),
        (LastStep(), (4, 0, 5), "of at least one step"),
        (Flatten(start_dim=3), (4, 5, 6), "axes 3 to -1 must be axes of [4, 5, 6] after the rows"),
        (Flatten(start_dim=-3), (4, 5, 6), "must be axes of [4, 5, 6] after the rows"),
        (GroupNorm(num_groups=2, num_channels=4), (2, 3, 5), "group_norm expects [N, 4, …], got shape [2, 3, 5]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(spec: LayerSpec, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        spec.output_shape(shape)


def test_groups_divide_the_channels_and_rows_are_not_flattened() -> None:
    with pytest.raises(SpecError, match="5 channels do not divide into 2 groups"):
        GroupNorm(num_groups=2, num_channels=5)
    with pytest.raises(SpecError, match="axis 0 counts rows"):
        Flatten(start_dim=0)


def test_nan_wins_in_its_windows_alone_and_equals_give_the_gradient_to_the_first() -> None:
    x = np.array([[[1, 1, np.nan, 5, -np.inf, -np.inf]]], np.float32)
    pool = MaxPool1d(kernel_size=2)
    y, saved = graphed(pool).forward({}, x)
    np.testing.assert_array_equal(y, [[[1, np.nan, -np.inf]]])
    [gx] = graphed(pool).vjp({}, saved, np.array([[[1, 2, 3]]], np.float32)).inputs
    np.testing.assert_array_equal(gx, [[[1, 0, 2, 0, 3, 0]]])


def test_constant_groups_and_empty_batches_are_finite() -> None:
    norm = GroupNorm(num_groups=1, num_channels=2)
    p = {"weight": np.ones(2), "bias": np.full(2, 0.5)}
    y, saved = graphed(norm).forward(p, np.full((1, 2, 3), 7.0))
    np.testing.assert_array_equal(y, np.full((1, 2, 3), 0.5))
    assert np.isfinite(graphed(norm).vjp(p, saved, np.ones((1, 2, 3))).inputs[0]).all()  # pyright: ignore
    empty, saved = graphed(norm).forward(p, np.ones((0, 2, 3)))
    assert graphed(norm).vjp(p, saved, empty).inputs[0].shape == (0, 2, 3)  # pyright: ignore
