"""Rows of packed tensors times factors: codes stay, scales are rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.base.errors import ShapeError
from volumetric.dtypes import BLOCK_FORMATS, Scheme, decode, encode, scaled_rows

RUNS = ((3, 0.3), (4, -1.7), (2, 1.0))
FACTORS = np.repeat([0.3, -1.7, 1.0], [3, 4, 2])
SCHEMES = ("float32", "bfloat16", "int8:g32", "int4:g32", "uint4:g32", "int8:row", *BLOCK_FORMATS)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_values_are_multiplied(scheme: str) -> None:
    x = np.random.default_rng(0).normal(size=(9, 2 if scheme == "bfloat16" else 1, 257)).astype(np.float32)
    packed = encode(x, scheme)
    found = scaled_rows(packed, RUNS)
    assert (found.scheme, found.shape) == (Scheme.parse(scheme), x.shape)
    wanted = decode(packed) * FACTORS[:, None, None]
    if scheme == "mxfp4":  # rounded anew
        np.testing.assert_array_equal(found.payload, encode(wanted.astype(np.float32), scheme).payload)
        return
    np.testing.assert_array_equal(found.codes(), packed.codes()) if packed.scheme.has_scale else None
    # A number is the sum of two that are rounded, where there are floors.
    near = np.abs(wanted).max() * (2.0**-8 if scheme == "bfloat16" else 2.0**-10)
    np.testing.assert_allclose(decode(found), wanted, rtol=0, atol=near if packed.scheme.has_scale or near else 0)


@pytest.mark.parametrize("scheme", ["int4:g32", "q4_k", "mxfp4", "float16"])
def test_powers_of_two_are_exact(scheme: str) -> None:
    packed = encode(np.random.default_rng(0).normal(size=(2, 256)).astype(np.float32), scheme)
    found = scaled_rows(packed, ((1, 0.5), (1, 4.0)))
    np.testing.assert_array_equal(decode(found), decode(packed) * np.array([[0.5], [4.0]], np.float32))


def test_a_vector_has_a_factor_for_each_number() -> None:
    found = scaled_rows(encode(np.arange(9, dtype=np.float32), "float32"), RUNS)
    np.testing.assert_allclose(decode(found), np.arange(9) * FACTORS, rtol=1e-6)


def test_factors_fit_the_rows() -> None:
    with pytest.raises(ShapeError, match="factors for 9 rows do not fit 8 rows"):
        scaled_rows(encode(np.zeros((8, 4), np.float32), "float32"), RUNS)
