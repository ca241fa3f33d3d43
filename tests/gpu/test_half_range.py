"""Which weights may be rounded to float16: none that it cannot hold, nor those of which it would leave few digits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.harness import in_scheme
from volumetric.devices.gpu.kernels.half_range import fits_half, largest_magnitude
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.dtypes import Scheme, decode, encode


@pytest.mark.parametrize("scheme", FORMATS)
def test_no_weight_is_larger(rng: np.random.Generator, scheme: str) -> None:
    """The bound is exact without scales; with them, no code or scale is larger than its bits allow."""
    exact = FORMATS[scheme].group == 0
    for factor in (1e-3, 1.0, 1e3):
        values = (factor * rng.standard_normal((7, 300)) - 0.1).astype(np.float32)
        packed = in_scheme(values, scheme)
        largest = float(np.abs(decode(packed).astype(np.float64)).max())
        bound = largest_magnitude(packed)
        assert largest <= bound
        assert bound == largest if exact else bound < 600 * largest


@pytest.mark.parametrize("value", [1e5, -1e5, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("scheme", ["bfloat16", "float8_e5m2:g32", "mxfp4", "q3_nl"])
def test_what_float16_cannot_hold(scheme: str, value: float) -> None:
    values = np.full((3, 64), 0.5, np.float32)
    assert fits_half(largest_magnitude(encode(values, Scheme.parse(scheme))))
    if not np.isfinite(value) and scheme != "bfloat16":
        return  # no codes for them
    values[1, 40] = value
    assert not fits_half(largest_magnitude(encode(values, Scheme.parse(scheme))))


def test_small_weights_keep_their_digits() -> None:
    zero, small, enough = (largest_magnitude(encode(np.full((2, 8), v, np.float32), Scheme.parse("bfloat16")))
                           for v in (0.0, -1e-5, -2.0**-13))  # fmt: skip
    assert (fits_half(zero), fits_half(small), fits_half(enough)) == (True, False, True)
