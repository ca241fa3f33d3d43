"""What tests hold all graph devices to: operations as the interpreter computes them in float64."""

from __future__ import annotations

import numpy as np

TOLERANCE = 4e-6


def agree(got: np.ndarray, want: np.ndarray, what: str, tolerance: float = TOLERANCE) -> None:
    """Odd numbers are equal, the others differ by no more than `tolerance` of the largest."""
    assert got.shape == want.shape
    assert got.dtype == np.float32
    odd = ~np.isfinite(want)
    want = want.astype(np.float64)
    np.testing.assert_array_equal(got[odd], want[odd], err_msg=what)
    scale = np.abs(want[~odd]).max(initial=0.1)
    np.testing.assert_allclose(got[~odd] / scale, want[~odd] / scale, rtol=0, atol=tolerance, err_msg=what)
