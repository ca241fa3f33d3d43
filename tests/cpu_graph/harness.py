"""What the tests of CPU graphs share: devices of one and of three threads, and what counts as agreement."""

from __future__ import annotations

from functools import cache

import numpy as np

from volumetric.runtime.cpu import CpuDevice
from volumetric.runtime.cpu.graph.device import CpuGraphs


@cache
def graphs(threads: int = 1) -> CpuGraphs:
    """The device; with several threads it uses them all, however small the work."""
    return CpuGraphs(threads, always=threads > 1) if threads > 1 else CpuDevice(threads).graphs()


def agree(got: np.ndarray, want: np.ndarray, what: str, tolerance: float) -> None:
    """Odd numbers are equal, the others differ by no more than `tolerance` of the largest."""
    assert got.shape == want.shape
    assert got.dtype == np.float32
    odd = ~np.isfinite(want)
    want = want.astype(np.float64)
    np.testing.assert_array_equal(got[odd], want[odd], err_msg=what)
    scale = np.abs(want[~odd]).max(initial=0.1)
    np.testing.assert_allclose(got[~odd] / scale, want[~odd] / scale, rtol=0, atol=tolerance, err_msg=what)
