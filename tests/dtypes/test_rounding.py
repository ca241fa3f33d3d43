"""Conversion of floats, against exact rational arithmetic over all numbers of the target."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from volumetric.dtypes import decode, encode, parse_dtype
from volumetric.dtypes.rounding import cast_saturating

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"]


def finite(grid: NDArray[Any]) -> NDArray[np.float64]:
    """The finite numbers among those of a type, as float64."""
    with np.errstate(invalid="ignore"):
        wide = grid.astype(np.float64)
    return wide[np.isfinite(wide)]


@cache
def numbers(name: str) -> NDArray[np.float64]:
    """The finite numbers of a type that are not negative, in order."""
    dtype = parse_dtype(name)
    patterns = np.arange(2 ** (dtype.bits - 1), dtype=np.uint32).astype(np.dtype(f"u{dtype.host.itemsize}"))
    return finite(patterns.view(dtype.host))


def nearest(x: float, name: str) -> float:
    """The number of a type nearest to `x`: among two, the one whose pattern is even; beyond the last, the last."""
    grid = numbers(name)
    size = abs(x)
    i = int(np.searchsorted(grid, size))
    if i == len(grid):
        return float(np.copysign(grid[-1], x))
    below, above = max(i - 1, 0), i
    left, right = Fraction(size) - Fraction(grid[below]), Fraction(grid[above]) - Fraction(size)
    if left == right:
        best = below if below % 2 == 0 else above
    else:
        best = below if left < right else above
    return float(np.copysign(grid[best], x))


@pytest.mark.thorough
@pytest.mark.parametrize("name", NARROW)
@given(x=st.floats(allow_nan=False, allow_infinity=False), data=st.data())
def test_one_rounding_to_nearest_even(name: str, x: float, data: st.DataObject) -> None:
    host = parse_dtype(name).host
    limit = float(ml_dtypes.finfo(host).max)
    near = data.draw(st.floats(-1.5 * limit if limit < 1e38 else -limit, limit))
    for value in (x, near):
        assert float(cast_saturating(np.array([value]), host)[0]) == nearest(value, name)
        with np.errstate(over="ignore"):
            single = np.array([value]).astype(np.float32)
        if np.isfinite(single[0]):
            assert float(cast_saturating(single, host)[0]) == nearest(float(single[0]), name)


@pytest.mark.parametrize("source", [np.float64, np.float32])
@pytest.mark.parametrize("name", NARROW)
def test_what_lies_beyond_the_largest_becomes_the_largest(name: str, source: type) -> None:
    """From the last number on in eighths of a step, across the half where IEEE 754 would turn to infinity."""
    host = parse_dtype(name).host
    info = ml_dtypes.finfo(host)
    limit = float(info.max)
    step = 2.0 ** (np.floor(np.log2(limit)) - info.nmant)
    x = limit + step * np.arange(-8, 33) / 8
    x = x[x <= float(ml_dtypes.finfo(source).max)].astype(source)
    for sign in (1, -1):
        # Alone as well: one number beyond must not depend on others to be noticed.
        for values in (sign * x, *(sign * x[i : i + 1] for i in range(len(x)))):
            found = cast_saturating(values, host).astype(np.float64)
            np.testing.assert_array_equal(found, [nearest(float(v), name) for v in values])


@pytest.mark.thorough
@pytest.mark.parametrize("name", NARROW)
@given(seed=st.integers(0, 2**32 - 1))
def test_ties_and_their_neighbours(name: str, seed: int) -> None:
    """Halfway points of the target, and the float64 next to them on either side, where rounding twice goes wrong."""
    dtype = parse_dtype(name)
    rng = np.random.default_rng(seed)
    grid = numbers(name)
    low = rng.integers(0, len(grid) - 1, 8)
    middle = (grid[low] + grid[low + 1]) / 2
    values = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    values = np.concatenate([values, -values])
    np.testing.assert_array_equal(
        cast_saturating(values, dtype.host).astype(np.float64), [nearest(v, name) for v in values]
    )


def test_float64_to_bfloat16_does_not_round_twice() -> None:
    x = np.array([1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40, -(1 + 2**-8 + 2**-40), 2.0**-134 + 2.0**-170, 1e300])
    expected = [1 + 2**-7, 1 + 2**-7, -(1 + 2**-7), 2.0**-133, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)]
    assert cast_saturating(x, np.dtype(ml_dtypes.bfloat16)).astype(np.float64).tolist() == expected


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("source", [np.float64, np.float32])
def test_odd_values_stay(name: str, source: type) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, -0.0], source)
    y = decode(encode(x, f"{name}:none"), np.float64)
    limit = min(float(ml_dtypes.finfo(parse_dtype(name).host).max), float(source(1e38)))
    assert np.isnan(y[0])
    assert y[1:3].tolist() == [np.inf, -np.inf]
    np.testing.assert_allclose(y[3:5], [limit, -limit], rtol=2**-8)
    assert np.isfinite(y[3:]).all()
    assert np.signbit(y[5])


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn"])
def test_signalling_nans_pass_silently(name: str) -> None:
    x = np.array([[0x7F81, 0xFFBF, 0x3F80, 0]], np.uint16).view(ml_dtypes.bfloat16)
    packed = encode(x, name)
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        y = decode(packed, dtype)
        with np.errstate(invalid="ignore"):
            assert np.isnan(y[0]).tolist() == [True, True, False, False]
        assert y[0, 2] == pytest.approx(1, abs=1e-6)


def test_cast_to_the_same_dtype_is_free() -> None:
    x = np.ones(3, np.float32)
    assert cast_saturating(x, x.dtype) is x


def test_decode_saturates() -> None:
    packed = encode(np.array([1e300, -1e300, np.inf, 1.0]), "float64")
    top = np.finfo(np.float32).max
    assert decode(packed).tolist() == [top, -top, np.inf, 1.0]
    assert decode(packed, np.float16).tolist() == [65504, -65504, np.inf, 1.0]
    assert decode(encode(np.array([1e6], np.float32), "bf16"), np.float16).tolist() == [65504]
