"""Convolutions against loops over every output element and tap, and against their own transpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.layers.graphed import graphed
from tests.layers.test_vjp import arrays
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    LayerSpec,
)

FORWARD: tuple[Any, ...] = (Conv1d, Conv2d, Conv3d)
TRANSPOSED: tuple[Any, ...] = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)


def slow_conv(fields: dict[str, Any], p: dict[str, np.ndarray], x: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The definition, one product at a time."""
    weight = p["weight"]
    inside, outside = weight.shape[1], weight.shape[0] // fields["groups"]
    y = np.zeros((len(x), weight.shape[0], *sizes))
    for n, f, *at in np.ndindex(*y.shape):
        total = p["bias"][f]
        for c, *tap in np.ndindex(*weight.shape[1:]):
            places = zip(at, tap, fields["stride"], fields["dilation"], fields["padding"], x.shape[2:], strict=True)
            where = [o * s + k * d - pad if 0 <= o * s + k * d - pad < size else -1 for o, k, s, d, pad, size in places]
            if min(where) >= 0:
                total += weight[(f, c, *tap)] * x[(n, f // outside * inside + c, *where)]
        y[(n, f, *at)] = total
    return y


def slow_transpose(
    fields: dict[str, Any], p: dict[str, np.ndarray], x: np.ndarray, sizes: tuple[int, ...]
) -> np.ndarray:
    """Every input element adds its kernel to the output."""
    weight = p["weight"]
    inside, outside = weight.shape[0] // fields["groups"], weight.shape[1]
    y = np.zeros((len(x), outside * fields["groups"], *sizes))
    for n, c, *at in np.ndindex(*x.shape):
        for f, *tap in np.ndindex(*weight.shape[1:]):
            places = zip(at, tap, fields["stride"], fields["dilation"], fields["padding"], sizes, strict=True)
            where = [i * s + k * d - pad if 0 <= i * s + k * d - pad < size else -1 for i, k, s, d, pad, size in places]
            if min(where) >= 0:
                y[(n, c // inside * outside + f, *where)] += weight[(c, f, *tap)] * x[(n, c, *at)]
    return y + p["bias"].reshape(-1, *[1] * len(sizes))


@st.composite
def geometries(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Fields common to both kinds with a number for each axis, and sizes of an image."""
    axes = draw(st.integers(1, 3))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes)))

    groups = draw(st.integers(1, 2))
    fields = {
        "in_channels": groups * draw(st.integers(1, 2)),
        "out_channels": groups * draw(st.integers(1, 2)),
        "groups": groups,
        "kernel_size": numbers(1, 3),
        "stride": numbers(1, 3),
        "padding": numbers(0, 2),
        "dilation": numbers(1, 2),
    }
    return fields, numbers(1, 5 if axes < 3 else 3)


def spans(fields: dict[str, Any]) -> list[int]:
    return [d * (k - 1) + 1 for k, d in zip(fields["kernel_size"], fields["dilation"], strict=True)]


@given(geometries(), st.integers(1, 2))
def test_convolution_equals_its_definition(geometry: tuple[dict[str, Any], tuple[int, ...]], samples: int) -> None:
    fields, sizes = geometry
    spec: LayerSpec = FORWARD[len(sizes) - 1](**fields)
    shape = (samples, fields["in_channels"], *sizes)
    axes = zip(sizes, fields["padding"], spans(fields), fields["stride"], strict=True)
    out = tuple((size + 2 * pad - span) // stride + 1 for size, pad, span, stride in axes)
    if min(out) < 1:
        with pytest.raises(ShapeError, match="does not fit the padded sizes"):
            spec.output_shape(shape)
        return
    assert spec.output_shape(shape) == (samples, fields["out_channels"], *out)
    p, x = arrays(spec, shape, seed=1)
    np.testing.assert_allclose(graphed(spec).forward(p, x)[0], slow_conv(fields, p, x, out), rtol=0, atol=1e-12)


@given(geometries(), st.integers(0, 2))
def test_transposed_convolution_equals_its_definition(
    geometry: tuple[dict[str, Any], tuple[int, ...]], more: int
) -> None:
    fields, sizes = geometry
    extra = tuple(min(more, max(s, d) - 1) for s, d in zip(fields["stride"], fields["dilation"], strict=True))
    spec: LayerSpec = TRANSPOSED[len(sizes) - 1](**fields, output_padding=extra)
    shape = (2, fields["in_channels"], *sizes)
    axes = zip(sizes, fields["stride"], fields["padding"], spans(fields), extra, strict=True)
    out = tuple((size - 1) * stride - 2 * pad + span + e for size, stride, pad, span, e in axes)
    if min(out) < 1:
        with pytest.raises(ShapeError, match="padding leaves an empty output"):
            spec.output_shape(shape)
        return
    assert spec.output_shape(shape) == (2, fields["out_channels"], *out)
    p, x = arrays(spec, shape, seed=1)
    np.testing.assert_allclose(graphed(spec).forward(p, x)[0], slow_transpose(fields, p, x, out), rtol=0, atol=1e-12)


def test_one_number_stands_for_every_axis() -> None:
    one = Conv3d(in_channels=2, out_channels=2, kernel_size=2, stride=2, padding=1, dilation=2)
    each = Conv3d(
        in_channels=2, out_channels=2, kernel_size=(2, 2, 2), stride=(2, 2, 2), padding=(1, 1, 1), dilation=(2, 2, 2)
    )
    p, x = arrays(one, (1, 2, 4, 5, 3), seed=0)
    np.testing.assert_array_equal(graphed(one).forward(p, x)[0], graphed(each).forward(p, x)[0])


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 1), (4, 3), (5, 2)])
def test_same_padding_keeps_the_size_and_puts_the_odd_zero_behind(kernel: int, dilation: int) -> None:
    spec = Conv1d(in_channels=1, out_channels=1, kernel_size=kernel, padding="same", dilation=dilation, bias=False)
    x = np.arange(1.0, 8.0).reshape(1, 1, 7)
    total = dilation * (kernel - 1)
    padded = np.pad(x, [(0, 0), (0, 0), (total // 2, total - total // 2)])
    p = {"weight": np.arange(1.0, kernel + 1).reshape(1, 1, kernel)}
    by_hand = Conv1d(in_channels=1, out_channels=1, kernel_size=kernel, dilation=dilation, bias=False)
    np.testing.assert_array_equal(graphed(spec).forward(p, x)[0], graphed(by_hand).forward(p, padded)[0])
    assert spec.output_shape((1, 1, 7)) == (1, 1, 7)


def test_known_numbers() -> None:
    edges = Conv2d(in_channels=1, out_channels=1, kernel_size=(1, 2), bias=False)
    x = np.array([[[[1.0, 4.0, 9.0], [0.0, 2.0, 3.0]]]])
    y, _ = graphed(edges).forward({"weight": np.array([[[[-1.0, 1.0]]]])}, x)
    np.testing.assert_array_equal(y, [[[[3.0, 5.0], [2.0, 1.0]]]])
    spread = ConvTranspose1d(in_channels=1, out_channels=1, kernel_size=2, stride=2, output_padding=1)
    p = {"weight": np.array([[[10.0, 1.0]]]), "bias": np.array([0.5])}
    np.testing.assert_array_equal(
        graphed(spread).forward(p, np.array([[[1.0, 2.0]]]))[0], [[[10.5, 1.5, 20.5, 2.5, 0.5]]]
    )


def test_zero_samples_and_nan_stay_what_they_are() -> None:
    for spec in (
        Conv2d(in_channels=2, out_channels=4, kernel_size=3, padding=1, groups=2),
        ConvTranspose2d(in_channels=2, out_channels=4, kernel_size=3, padding=1, groups=2),
    ):
        p, x = arrays(spec, (2, 2, 5, 5), seed=0)
        y, saved = graphed(spec).forward(p, x[:0])
        grads = graphed(spec).vjp(p, saved, y)
        assert y.shape == (0, 4, 5, 5)
        assert grads.inputs[0] is not None
        assert grads.inputs[0].shape == (0, 2, 5, 5)
        assert not any(g.any() for g in grads.params.values())
        x[0, 0, 0, 0] = np.nan
        y, _ = graphed(spec).forward(p, x)
        assert np.argwhere(np.isnan(y)).tolist() == [[0, f, i, j] for f in (0, 1) for i in (0, 1) for j in (0, 1)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kernel_size": (3,)}, r"kernel_size must be a whole number from 1 or 2 of them, got \(3,\)"),
        ({"kernel_size": 0}, "kernel_size"),
        ({"stride": (1, 0)}, "stride must be"),
        ({"padding": -1}, "padding must be a whole number from 0"),
        ({"dilation": True}, "dilation must be"),
        ({"groups": 3}, "in_channels 4 does not divide into 3 groups"),
        ({"groups": 4}, "out_channels 6 does not divide into 4 groups"),
        ({"padding": "same", "stride": 2}, "padding 'same' needs stride 1"),
        ({"padding": "reflect"}, "padding must be"),
        ({"activation": "softplus"}, "unknown activation"),
    ],
)
def test_ill_formed_convolutions_are_refused(fields: dict[str, Any], message: str) -> None:
    given_fields: dict[str, Any] = {"in_channels": 4, "out_channels": 6, "kernel_size": 3, **fields}
    with pytest.raises(SpecError, match=message):
        Conv2d(**given_fields)


def test_output_padding_is_below_stride_or_dilation() -> None:
    with pytest.raises(SpecError, match="output_padding 2 must be below stride 2"):
        ConvTranspose1d(in_channels=1, out_channels=1, kernel_size=2, stride=2, output_padding=2)
    ConvTranspose1d(in_channels=1, out_channels=1, kernel_size=2, stride=2, output_padding=2, dilation=3)


@pytest.mark.parametrize("shape", [(1, 4, 5), (1, 3, 5, 5), (4, 5, 5), (1, 4, 5, 5, 5)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    for kind in (Conv2d, ConvTranspose2d):
        with pytest.raises(ShapeError, match=r"expects \[N, 4, H, W\], got shape"):
            kind(in_channels=4, out_channels=4, kernel_size=3).output_shape(shape)
